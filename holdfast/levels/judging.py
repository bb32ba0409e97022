"""Measured against promised: kept, or BROKEN and by which frames.

| promise | level | kept when |
|---|---|---|
| `lossless` | LOLE | nothing lost, nothing wrong, nothing twice |
| `loses(at_most, wrong_at_most)` | LILO | shares of the ideal run's elements; copies count as wrong, and so does what the run marked as tainted |
| `within(d)` | LIDE, DEFR for 0 | no frame was visible later than d after it was due |
| `in_order` | IASO | no frame was visible before one with a lower number |
| `in_order_across` | IESO | the same for all named outputs taken together, each included |

So LOLE is in LILO, DEFR in LIDE, IESO in IASO, and DEFR in IESO; the others are
independent (tests/levels show both). What is not promised is measured and said all the same.

Pure: plain values in, plain values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.graph.durations import show_ms
from holdfast.graph.promises import InOrder, InOrderAcross, Loses, Promise, Within
from holdfast.levels.measuring import Measured
from holdfast.levels.recomputed import Recomputed

__all__ = ["Verdict", "is_broken", "judge", "judge_recomputed", "show_frames"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the answer."""

    output: str
    what: str  # lost | wrong | duplicates | tainted | delay | order | order across | oracle
    promised: str  # "" where nothing was
    measured: str
    state: str  # kept | BROKEN | not promised | not measured; of the oracle: agrees | BROKEN | not recomputed
    frames: tuple[int, ...] = ()  # that break it, or would
    level: str = ""  # as the definitions call it
    why: str = ""  # where nothing could be said

    @property
    def words(self) -> str:
        """'BROKEN, frames 40-43'."""
        said = f"{self.state}, {show_frames(self.frames)}" if self.state == "BROKEN" and self.frames else self.state
        return f"{said}: {self.why}" if self.why else said

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(promises: Sequence[Promise], measured: Measured) -> list[Verdict]:
    """All that was measured of an output, each against its promise if it has one."""
    loses = next((each for each in promises if isinstance(each, Loses)), None)
    within = next((each for each in promises if isinstance(each, Within)), None)
    order = next((each for each in promises if isinstance(each, InOrder)), None)
    across = [each for each in promises if isinstance(each, InOrderAcross)]
    return [
        *_loss(measured, loses),
        _delay(measured, within),
        _order(measured, order),
        *(_across(measured, each) for each in across),
    ]


def judge_recomputed(line: Recomputed) -> Verdict:
    """A frame that is not what its inputs give breaks any promise. What was not computed again is not said to be right."""
    frames = tuple(each.n for each in line.differs)
    state = "BROKEN" if frames else "agrees" if line.frames and not line.left_out else "not recomputed"
    return Verdict(line.output or line.stream, "oracle", "", line.words, state, frames, why=line.left_out)


def is_broken(verdicts: Iterable[Verdict]) -> bool:
    return any(verdict.state == "BROKEN" for verdict in verdicts)


def show_frames(frames: Sequence[int]) -> str:
    """(40, 41, 42, 50) -> 'frames 40-42, 50'; long lists are cut."""
    runs: list[list[int]] = []
    for n in sorted(set(frames)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    words = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in runs]
    shown = ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
    return f"{'frame' if len(set(frames)) == 1 else 'frames'} {shown}"


def _loss(measured: Measured, promise: Loses | None) -> list[Verdict]:
    lost, wrong = sum(measured.lost.values()), sum(measured.wrong.values())
    copies = sum(measured.duplicates.values())
    level = promise.level if promise else ""
    may_lose = _allowed(promise.at_most) if promise else ""
    may_be_wrong = _allowed(promise.wrong_at_most) if promise else ""
    # A frame without rows that never came is no lost element, but it is no lossless output either.
    keeps = promise is None or (
        measured.lost_share <= promise.at_most and not (promise.at_most == 0 and measured.missing)
    )
    is_right = promise is None or measured.wrong_share <= promise.wrong_at_most
    never = f", {len(measured.missing):,} of {measured.frames:,} frames never came" if measured.missing else ""
    return [
        Verdict(measured.output, "lost", may_lose, f"{lost:,} of {measured.elements:,}{never}",
                _state(promise, keeps), tuple(sorted({*measured.lost, *measured.missing})), level),
        Verdict(measured.output, "wrong", may_be_wrong, f"{wrong:,}",
                _state(promise, is_right or not wrong), tuple(measured.wrong), level),
        Verdict(measured.output, "duplicates", may_be_wrong, f"{copies:,}{_came_again(measured)}",
                _state(promise, is_right or not copies), tuple(measured.duplicates), level),
        *_tainted(measured, promise),
    ]  # fmt: skip


def _tainted(measured: Measured, promise: Loses | None) -> list[Verdict]:
    """What the run marked, and what differs though nothing was said of it. Nothing was marked: no line."""
    if not measured.tainted:
        return []
    rows, silent = sum(measured.tainted.values()), measured.unmarked
    holds = promise is None or (
        measured.tainted_share <= promise.wrong_at_most and not (measured.tainted and promise.wrong_at_most == 0)
    )
    words = f"{rows:,} in {len(measured.tainted):,} frames" + (
        f"; not marked and differs: {show_frames(silent)}" if silent else ""
    )
    return [
        Verdict(measured.output, "tainted", _allowed(promise.wrong_at_most) if promise else "", words,
                _state(promise, holds), tuple(measured.tainted), promise.level if promise else "")
    ]  # fmt: skip


def _delay(measured: Measured, promise: Within | None) -> Verdict:
    promised, level = (show_ms(promise.delay_ms_max), promise.level) if promise else ("", "")
    if measured.delay_ms_max is None:
        return Verdict(measured.output, "delay", promised, "as fast as it goes", "not measured", (), level)
    words = f"max {_seconds(measured.delay_ms_max)}, p99 {_seconds(measured.delay_ms_p99)}"
    bound = promise.delay_ms_max if promise else None
    late = tuple(n for n, ms in sorted(measured.delay_ms.items()) if bound is not None and ms > bound)
    return Verdict(measured.output, "delay", promised, words, _state(promise, not late), late, level)


def _order(measured: Measured, promise: InOrder | None) -> Verdict:
    late = measured.disordered
    promised, level = (str(promise), promise.level) if promise else ("", "")
    return Verdict(measured.output, "order", promised, _violations(late), _state(promise, not late), late, level)


def _across(measured: Measured, promise: InOrderAcross) -> Verdict:
    late = {*measured.disordered}
    for other in promise.sinks:
        late |= {*measured.across.get(other, ())}
    frames = tuple(sorted(late))
    return Verdict(measured.output, "order across", ", ".join(promise.sinks), _violations(frames),
                   _state(promise, not frames), frames, promise.level)  # fmt: skip


def _state(promise: Promise | None, holds: bool) -> str:
    return "not promised" if promise is None else "kept" if holds else "BROKEN"


def _allowed(share: float) -> str:
    return "none" if share == 0 else f"at most {100 * share:.3g} %"


def _violations(frames: tuple[int, ...]) -> str:
    return f"{len(frames):,} violation{'' if len(frames) == 1 else 's'}"


def _came_again(measured: Measured) -> str:
    return f" ({show_frames(measured.again)} came again, written once)" if measured.again else ""


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"
