"""Join docs/errors.d/*.md into docs/errors.md, by code: python docs/build_errors.py

Each part of Holdfast documents its own errors; readers want one page to search.
A test compares the page with what this makes of the parts.
"""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
HEADER = """\
# Errors

Made from `docs/errors.d/` by `docs/build_errors.py`; do not edit. Every error says what became of the data.

| code | about | exit, as a rule |
|---|---|---|
| C | a value in a declaration or a call | 2 |
| E | the environment: Java, session, folders; the shell | 6, 2 |
| F | frames | 5 |
| G | the graph: rules of `holdfast check` | 3 |
| K | sinks | 5 |
| L | promises | warnings |
| M | models: predict, advise | 2 |
| N | stochastic activity networks (`holdfast.models.san`) | 2 |
| O | operators: your code | 5 |
| R | refused: state in use, or state that does not fit | 6 |
| S | sources | 5 |
| U | units and runs | 5, 2 |
| X | a defect of ours | 70 |

After exit 5 the state folder is whole: mend the cause, run again, and it goes on with the frame that failed.
"""


def built() -> str:
    sections: dict[str, str] = {}
    for part in sorted((DOCS / "errors.d").glob("*.md")):
        for text in re.split(r"^(?=## )", part.read_text(), flags=re.MULTILINE):
            if text.startswith("## "):
                sections[text.split()[1]] = text.strip()
    return "\n\n".join([HEADER.strip(), *(sections[code] for code in sorted(sections))]) + "\n"


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(built())
