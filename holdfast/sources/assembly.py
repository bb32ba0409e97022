"""Frames being put together: which rows of which files belong to each open frame.

Elements come in order, cut into frame numbers by `frames.cut.Cutter`. A frame
holds row ranges until it closes and then becomes a `SourceFrame`. What is kept
for an open frame can be saved and taken up again, so a restart need not index
what closed long ago.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from holdfast.errors import SourceError
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import NULL_US, Cut, Cutter
from holdfast.frames.identity import END_US, FIRST_N
from holdfast.sources.index import IndexedFile, Piece
from holdfast.sources.reader import SourceContext, SourceFrame, frame_checksum
from holdfast.sources.reference import Reference

__all__ = ["Assembly", "earliest"]

# Eleven days of seconds. A sensor whose clock jumps would otherwise make the
# process work through empty frames for years.
EMPTY_FRAMES_MAX = 1_000_000
# Frames that are closed by the clock in one go, and are in memory together.
CLOSED_AT_ONCE_MAX = 65_536


@dataclass(slots=True)
class _Open:
    parts: list[tuple[IndexedFile, np.ndarray]] = field(default_factory=list)
    apart: list[tuple[IndexedFile, np.ndarray]] = field(default_factory=list)
    # References from before a restart; they come before `parts`.
    kept: list[Reference] = field(default_factory=list)
    kept_apart: list[Reference] = field(default_factory=list)
    kept_bytes: int = 0
    late_rows: int = 0


class Assembly:
    def __init__(self, context: SourceContext, clock: FrameClock, first: int = FIRST_N) -> None:
        self._context, self._clock = context, clock
        self._open: dict[int, _Open] = {}
        self.next = first  # the frame that is handed out next
        self._failed: SourceError | None = None
        self.failed_at: int | None = None  # the row of its file that stops the source

    def add(self, file: IndexedFile, piece: Piece, cutter: Cutter, late: str | None = None) -> int:
        """Cut the next rows of `file`. Returns the frame up to which all is closed.

        `late`: what to do with late ones of these rows, if not what is declared.

        The cutter admits whatever is late; what is declared for late elements is
        done here. An element that stops the source stops it after the frames
        before it, however the input was handed over: take them, then `check`. Cutting
        stands before that element then, at row `failed_at` of the file.
        """
        if not piece.rows or self._failed is not None:
            return cutter.closed
        placed = self._place_in_order(piece, cutter)
        if placed is not None:
            for n, ranges in placed:
                self._at(n).parts.append((file, ranges))
            return cutter.closed
        before = cutter.state()
        policy = late or self._context.late
        at = self._add(file, piece.start, piece.times_us, cutter.feed(piece.times_us), policy)
        if self._failed is not None:
            cutter.go_back(before)
            cutter.feed(piece.times_us[:at])
        return cutter.closed

    def _place_in_order(self, piece: Piece, cutter: Cutter) -> list[tuple[int, np.ndarray]] | None:
        """Frames of rows none of which can be late, without looking at each; else None.

        Elements of one open frame, or in time order from an open frame on, are
        never late: the newest before each is before the end of its own frame.
        The cutter need only see the first and the last.
        """
        low_us, high_us = piece.span_us or (NULL_US, NULL_US)
        if piece.span_us is None or not self._in_one_frame(low_us, high_us):
            times = piece.times_us
            if (times[1:] < times[:-1]).any():
                return None
            low_us, high_us = int(times[0]), int(times[-1])
        first, last = self._clock.frame_at(low_us), self._clock.frame_at(high_us)
        if high_us >= END_US or first <= cutter.closed or last - self.next > EMPTY_FRAMES_MAX:
            return None
        cutter.feed(np.array([low_us, high_us]))
        if first == last:
            return [(first, np.array([[piece.start, piece.start + piece.rows]]))]
        ends_us = self._clock.boundary_us(first) + np.arange(last - first) * self._clock.frame_us
        edges = np.concatenate(([0], np.searchsorted(piece.times_us, ends_us), [piece.rows]))
        filled = np.flatnonzero(edges[1:] > edges[:-1])
        ranges = np.column_stack((edges[:-1], edges[1:]))[filled] + piece.start
        return [(first + int(at), ranges[i : i + 1]) for i, at in enumerate(filled)]

    def _in_one_frame(self, low_us: int, high_us: int) -> bool:
        return self._clock.frame_at(low_us) == self._clock.frame_at(high_us)

    def _add(self, file: IndexedFile, start: int, times_us: np.ndarray, cut: Cut, policy: str) -> int:
        """How many of the rows were placed: all, or those before one that fails."""
        at, self._failed = self._first_failure(file, start, times_us, cut, policy)
        self.failed_at = None if self._failed is None else start + at
        frames, late = cut.frames[:at], cut.late[:at]
        keys = frames
        if late.any():
            for n, rows in zip(*np.unique(frames[late], return_counts=True), strict=True):
                self._at(int(n)).late_rows += int(rows)
            if policy == "drop":
                keys = np.where(late, 0, frames)
            elif policy == "quarantine":
                keys = np.where(late, -frames, frames)
        if len(keys):
            for key, ranges in _runs(keys, start):
                if key > 0:
                    self._at(key).parts.append((file, ranges))
                elif key < 0:
                    self._at(-key).apart.append((file, ranges))
        return at

    def would_stop(self, file: IndexedFile, piece: Piece, cutter: Cutter) -> tuple[int, SourceError] | None:
        """The first row of the piece that would stop the source, counted from the piece's start; nothing is placed."""
        times = piece.times_us
        cut = Cutter.restored(cutter.state()).feed(times)
        at, error = self._first_failure(file, piece.start, times, cut, self._context.late)
        return None if error is None else (at, error)

    def open_rows(self) -> dict[int, int]:
        """id of a file -> the lowest row of it that an open frame has."""
        found: dict[int, int] = {}
        for state in self._open.values():
            for file, ranges in (*state.parts, *state.apart):
                low = int(ranges[0, 0])
                found[id(file)] = min(found.get(id(file), low), low)
        return found

    def open_files(self) -> dict[int, list[int]]:
        """number of a growing file -> the open frames that have rows of it."""
        found: dict[int, list[int]] = {}
        for n, state in sorted(self._open.items()):
            files = {file.no for file, _ in (*state.parts, *state.apart)}
            for no in files | {reference.no for reference in (*state.kept, *state.kept_apart)}:
                found.setdefault(no, []).append(n)
        return found

    def check(self) -> None:
        """Raise what stopped the source, if anything did."""
        if self._failed is not None:
            raise self._failed

    def add_whole(self, file: IndexedFile, n: int) -> None:
        """All rows of a file as frame n."""
        if file.rows:
            self._at(n).parts.append((file, np.array([[0, file.rows]], dtype=np.int64)))

    @property
    def last_open(self) -> int:
        """The last frame that has a row; 0 if none has."""
        return max(self._open, default=0)

    def check_clock(self, now_us: int) -> None:
        """Of a source whose elements have the time of their arrival, before it takes any: they would be refused once they are logged."""
        ahead = self._clock.frame_at(now_us) - self.next
        if ahead > EMPTY_FRAMES_MAX:
            raise SourceError(
                "HF-S008",
                "TimeJumps",
                f"the clock of this machine is {ahead:,} frames ahead of the last one.",
                where=f"source {self._context.name!r}",
                why=f"it says {_show(now_us)}, and an element has the time at which it arrives",
                effect="nothing was taken nor acknowledged; frames before it stand, what was taken before is in them",
                do="set the clock and run again; if it is right (it was wrong before, or nothing ran for so long), begin a new "
                "state folder (--state DIR), or one with a longer frame",
            )

    def take(self, closed: int) -> Iterator[SourceFrame]:
        """The frames up to `closed`, gapless; a silent one is empty."""
        while self.next <= closed:
            n = self.next
            self.next += 1
            yield self._sealed(n, self._open.pop(n, None))

    def saved(self) -> list[dict]:
        """The open frames, as JSON."""
        found = []
        for n, state in sorted(self._open.items()):
            references, size = _references(state.kept, state.kept_bytes, state.parts)
            apart, _ = _references(state.kept_apart, 0, state.apart)
            found.append(
                {
                    "n": n,
                    "references": [reference.to_json() for reference in references],
                    "apart": [reference.to_json() for reference in apart],
                    "bytes": size,
                    "late_rows": state.late_rows,
                }
            )
        return found

    def restore(self, saved: list[dict], here: Callable[[Reference], Reference] = lambda found: found) -> None:
        """Take up what `saved` gave; `here` finds a reference again after a move."""
        for fields in saved:
            self._open[fields["n"]] = _Open(
                kept=[here(Reference.from_json(found)) for found in fields["references"]],
                kept_apart=[here(Reference.from_json(found)) for found in fields["apart"]],
                kept_bytes=fields["bytes"],
                late_rows=fields["late_rows"],
            )

    def _at(self, n: int) -> _Open:
        state = self._open.get(n)
        if state is None:
            state = self._open[n] = _Open()
        return state

    def _sealed(self, n: int, state: _Open | None) -> SourceFrame:
        boundary_us, schema = self._clock.boundary_us(n), self._context.schema
        if state is None:
            return SourceFrame(n, (), 0, 0, frame_checksum(n, boundary_us, schema, ()), 0)
        references, size = _references(state.kept, state.kept_bytes, state.parts)
        apart, _ = _references(state.kept_apart, 0, state.apart)
        return SourceFrame(
            n=n,
            references=references,
            rows=sum(reference.rows for reference in references),
            bytes=size,
            checksum=frame_checksum(n, boundary_us, schema, references),
            late_rows=state.late_rows,
            quarantined=apart,
        )

    def _first_failure(
        self, file: IndexedFile, start: int, times_us: np.ndarray, cut: Cut, policy: str
    ) -> tuple[int, SourceError | None]:
        """(place, error) of the first element that stops the source; (len, None) if none does."""
        failures = []
        jump = self._jump(cut.frames)
        if jump is not None:
            failures.append((*jump, "jump"))
        if cut.late.any():
            if policy == "fail":
                failures.append((int(cut.late.argmax()), 0, "late"))
            missing = (times_us == NULL_US) | (times_us >= END_US)
            if policy in ("admit", "fail") and missing.any():
                # Admitting an element without a time would only move the error
                # to the first operator that looks at it.
                failures.append((int(missing.argmax()), 0, "missing"))
        if not failures:
            return len(times_us), None
        # At the same element the plainer reason is named.
        at, ahead, kind = min(failures, key=lambda found: (found[0], found[2] == "late"))
        where = f"source {self._context.name!r}, {file.path}, row {start + at}"
        if kind == "jump":
            return at, _time_jumps(where, ahead, times_us[at])
        if kind == "missing":
            return at, _time_missing(where, self._context.time)
        return at, _element_late(where, int(cut.frames[at]), times_us[at])

    def _jump(self, frames: np.ndarray) -> tuple[int, int] | None:
        """Place of the first element too far ahead of all before it, and how far."""
        if int(frames.max()) - self.next <= EMPTY_FRAMES_MAX:
            return None
        ahead = np.diff(np.maximum.accumulate(frames), prepend=self.next)
        far = ahead > EMPTY_FRAMES_MAX
        at = int(far.argmax())
        return (at, int(ahead[at])) if far[at] else None


def earliest(pieces: Iterable[Piece], spread_us: int) -> int | None:
    """Where a source's time begins: the least time before the times spread over `spread_us`.

    With the grace and one frame as spread, whatever comes later with a smaller
    time is late by any clock. So the answer depends on the elements, not on how
    they are handed over, and on no more of them than it must.
    """
    low, high = END_US, NULL_US
    for piece in pieces:
        if piece.span_us is not None:
            least, greatest = min(low, piece.span_us[0]), max(high, piece.span_us[1])
            if greatest < END_US and greatest - least < spread_us:
                low, high = least, greatest
                continue
        for at in range(0, piece.rows, 65_536):
            times = piece.times_us[at : at + 65_536]
            times = times[(times != NULL_US) & (times < END_US)]
            if not len(times):
                continue
            lows = np.minimum(np.minimum.accumulate(times), low)
            highs = np.maximum(np.maximum.accumulate(times), high)
            far = highs >= lows + spread_us
            if far.any():
                return int(lows[int(far.argmax())])
            low, high = int(lows[-1]), int(highs[-1])
    return low if low != END_US else None


def _time_jumps(where: str, ahead: int, time_us: int) -> SourceError:
    return SourceError(
        "HF-S008",
        "TimeJumps",
        f"an element is {ahead:,} frames ahead of all before it.",
        where=where,
        why=f"its time is {_show(time_us)}",
        effect="its frame is not made; frames before it stand",
        do="correct the time; or begin a new state folder (--state DIR) after the gap, or with a longer frame",
    )


def _time_missing(where: str, column: object) -> SourceError:
    return SourceError(
        "HF-S007",
        "TimeMissing",
        f"an element has no usable time in {column!r}.",
        where=where,
        effect="its frame is not made; frames before it stand, no row was skipped",
        do="fill in the time, or declare late='quarantine' or late='drop'",
    )


def _element_late(where: str, n: int, time_us: int) -> SourceError:
    return SourceError(
        "HF-F004",
        "ElementLate",
        f"an element has the time {_show(time_us)}, but frames up to {n - 1} are closed.",
        where=where,
        why=f"frame {n} is the lowest open one; late='fail' was declared",
        effect="the input stops before this element; frames closed before it are as they were",
        do="declare late='admit', 'drop' or 'quarantine' and run again; a longer grace= needs a new state folder",
    )


def _runs(keys: np.ndarray, start: int) -> Iterator[tuple[int, np.ndarray]]:
    """(key, ranges of rows that have it), each key once, rows ascending."""
    edges = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    firsts = np.concatenate(([0], edges))
    ranges = np.column_stack((firsts, np.concatenate((edges, [len(keys)])))) + start
    run_keys = keys[firsts]
    if len(run_keys) > 1 and (run_keys[1:] < run_keys[:-1]).any():
        order = np.argsort(run_keys, kind="stable")
        run_keys, ranges = run_keys[order], ranges[order]
    splits = np.flatnonzero(run_keys[1:] != run_keys[:-1]) + 1
    bounds = [0, *splits.tolist(), len(run_keys)]
    for low, high in itertools.pairwise(bounds):
        yield int(run_keys[low]), ranges[low:high]


def _references(
    kept: list[Reference], size: int, parts: list[tuple[IndexedFile, np.ndarray]]
) -> tuple[tuple[Reference, ...], int]:
    """One reference per file, in element order, and what they weigh."""
    found = list(kept)
    by_file: dict[int, tuple[IndexedFile, list[np.ndarray]]] = {}
    for file, ranges in parts:
        by_file.setdefault(id(file), (file, []))[1].append(ranges)
    for file, pieces in by_file.values():
        reference = file.reference(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
        size += file.weight(reference)
        found.append(reference)
    return tuple(found), size


def _show(time_us: int) -> str:
    return f"{np.datetime64(int(time_us), 'us')}Z" if time_us != NULL_US else "null"
