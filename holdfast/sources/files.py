"""Files as a source: read again from where they are, cut by what is in them.

Elements come in the order of file names, then rows. Which frame an element is in
depends on the files alone, so every host that can read them makes the same
frames, and none of them is copied. With no element time (ARRIVAL), each file is
one frame.

Here is the declaration; `cutting` does the work. It imports no Arrow, so that
`check` stays quick.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import SourceError, UsageError
from holdfast.graph.declared import did_you_mean
from holdfast.sources.pace import Pace

if TYPE_CHECKING:
    from holdfast.sources.cutting import OpenFiles
    from holdfast.sources.reader import SourceContext

__all__ = ["FileReader"]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


class FileReader:
    """Made by `hf.read.files`. Declares; opens nothing."""

    bounded = True
    reliable = True

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        format: str | None = None,
        rate: object = None,
        options: dict[str, object] | None = None,
    ) -> None:
        self.pattern = os.fspath(pattern)
        self.rate = rate  # the engine releases frames at this pace
        self._pace = Pace.of(rate)
        self.options = dict(options or {})
        self.format = format
        if format is not None and format not in ("parquet", "csv", "json"):
            raise UsageError(
                "HF-C031",
                "NotAFormat",
                f"format {format!r} is not one Holdfast reads.",
                effect="nothing was declared",
                do="write 'parquet', 'csv' or 'json', or leave it to the suffix",
            )

    def describe(self) -> str:
        return f"files {self.pattern}, {self._pace}"

    def open(self, context: SourceContext) -> OpenFiles:
        from holdfast.sources.cutting import OpenFiles

        return OpenFiles(self, context, self._list(context))

    def _list(self, context: SourceContext) -> list[tuple[str, str]]:
        """(path, format) in name order."""
        whole = os.path.join(context.base, self.pattern)
        if os.path.isdir(whole):
            # As Spark does: names that begin with . or _ are not data.
            found = [
                str(path)
                for path in Path(whole).rglob("*")
                if path.is_file()
                and not any(part[0] in "._" for part in path.relative_to(whole).parts)
                and (self.format or _format_of(str(path)))
            ]
        elif glob.has_magic(whole):
            found = [path for path in glob.glob(whole, recursive=True) if os.path.isfile(path)]
        else:
            found = [whole] if os.path.isfile(whole) else []
        if not found:
            raise SourceError(
                "HF-S001",
                "SourceMissing",
                f"no file matches {self.pattern!r}.",
                where=f"source {context.name!r}, looked in {context.base}",
                effect="nothing was read",
                do=did_you_mean(
                    self.pattern,
                    _beside(context.base, self.pattern),
                    "correct the pattern; it starts at the folder of the process's file",
                ),
            )
        pairs = []
        for path in sorted(found, key=lambda path: Path(path).parts):
            format = self.format or _format_of(path)
            if format is None:
                raise SourceError(
                    "HF-S005",
                    "Unreadable",
                    "the file's name does not say what format it has.",
                    where=path,
                    effect="nothing was read",
                    do="name the format: read.files(..., format='csv')",
                )
            pairs.append((os.path.abspath(path), format))
        return pairs

    def options_for(self, path: str, format: str) -> dict[str, object]:
        if format == "parquet":
            return {}
        if format == "json":
            return {"missing": self.options.get("missing", "error")}
        tabs = path.removesuffix(".gz").endswith(".tsv")
        return {
            "header": self.options.get("header", True),
            "delimiter": self.options.get("delimiter") or ("\t" if tabs else ","),
            "quote": self.options.get("quote", '"'),
            "null": self.options.get("null", ""),
        }


def _beside(base: str | os.PathLike[str], pattern: str) -> list[str]:
    """Files a misspelt name may have meant, as they would be written in its place."""
    folder = os.path.dirname(pattern)
    if glob.has_magic(pattern):
        return []
    there = Path(base, folder)
    return [os.path.join(folder, path.name) for path in there.iterdir() if path.is_file()] if there.is_dir() else []


def _format_of(path: str) -> str | None:
    name = path.removesuffix(".gz")
    found = _FORMATS.get(os.path.splitext(name)[1].lower())
    return None if found == "parquet" and name != path else found
