"""What `--oracle` asks for, and how its answer is reported.

Everything else is measured against the undisturbed run. If the engine made it wrong, it made the disturbed run wrong
in the same way, and both agree. Therefore another OS process that shares no plan with it recomputes some of its
frames (`holdfast.oracle`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.errors import UnitError, UsageError
from holdfast.graph.model import Graph
from holdfast.levels.judging import show_frames
from holdfast.levels.recomputed import Recomputed

__all__ = ["FRAMES", "Asked", "asked_for", "did_not_end", "not_asked", "told"]

# The first, the last and six between: seconds, where the two runs take a minute each.
FRAMES = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """`count`: frames a stream at most; None: all."""

    count: int | None = FRAMES


def asked_for(words: str) -> Asked | None:
    """`--oracle all`, a number, or `none`: None."""
    said = words.strip().lower()
    if said == "none":
        return None
    if said == "all":
        return Asked(None)
    if said.isascii() and said.isdigit() and int(said) > 0:
        return Asked(int(said))
    raise UsageError(
        "HF-E055", "OracleNotUnderstood", f"--oracle {words} says nothing that is known.",
        why="it is how many frames of each output are computed a second time",
        effect="nothing was started", do=f"write --oracle all, --oracle none, or a number as --oracle {FRAMES}",
    )  # fmt: skip


def not_asked(graph: Graph) -> tuple[Recomputed, ...]:
    """The lines of outputs that were not recomputed."""
    return tuple(Recomputed(sink.name, sink.stream, "", "", left_out="--oracle none") for sink in graph.sinks)


def told(lines: Iterable[Recomputed]) -> list[UnitError]:
    """One error for each output with frames that differ from what their inputs give."""
    return [_differs(line) for line in lines if line.differs]


def did_not_end(file: str, code: int, said: str) -> UnitError:
    return UnitError(
        "HF-U062", "OracleFailed", f"the second computation of frames ended with exit {code}.", where=file, why=said,
        effect="nothing was compared; your sinks and your state folder were not touched",
        do="fix what stops it; or do without it, and know that both runs may be wrong alike: --oracle none",
    )  # fmt: skip


def _differs(line: Recomputed) -> UnitError:
    first, frames = line.worst, show_frames([each.n for each in line.differs])
    name = f"output {line.output!r}" if line.output else f"stream {line.stream!r}"
    if first.came:
        what = f"frame {first.n:,} of {name} is not what its inputs give."
        rows = f"has {first.missing:,} rows that the run lacks, and lacks {first.extra:,} that the run has"
        why = f"computed by another way ({line.way}) it " + (f"raised {first.raised}" if first.raised else rows)
        why += _rows("lacking", first.first_missing) + _rows("too many", first.first_extra)
        why += f"\nof {len(line.frames):,} frames that were recomputed: {frames}"
    else:
        what = f"frame {first.n:,} of {name} never came."
        why = f"its number is between others that came, or the input continues\nmissing: {frames}"
    return UnitError(
        "HF-U061", "OracleDiffers", what, where=f"unit {line.unit!r}, operator {line.operator!r}, {name}", why=why,
        effect="the undisturbed run is wrong here, and the disturbed one may be wrong alike; your sinks and your state folder were "
        "not touched",
        do=f"see whether {line.operator!r} remembers something between frames (a library's cache, a file, a view in a session of "
        "its own), uses randomness or a clock, or picks one of several tied rows; if it does none of that, it is our mistake: "
        "report it, with what --keep DIR leaves",
    )  # fmt: skip


def _rows(word: str, rows: Sequence[str]) -> str:
    return "".join(f"\n{word}: {row}" for row in rows)
