"""A growing source in operation: looked at, read on, cut, sealed, handed out.

The source's own thread looks at the folder about every second (`watching`), reads
whole rows from where it was in each file, in the order in which files were met (by
name, those met together), cuts them and seals
the frames that are closed (`grown`); then it hands them out. Sealed frames come out of
the list again after a crash, as they were; what was read after the last seal is read
again. Nothing is copied: a frame refers to blocks of the files, each with its digest.

Frames close by element time, and with `boundary="clock"` (the default) by the clock too,
as those of live sources do (`ingest`). Before the clock closes a frame the folder is
looked at once more.
"""

from __future__ import annotations

import gzip
import re
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from holdfast.errors import SourceError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter, times_of
from holdfast.journals.seals import SealJournal
from holdfast.sources.assembly import CLOSED_AT_ONCE_MAX, Assembly, earliest
from holdfast.sources.files.aside import clear_behind, set_aside
from holdfast.sources.files.file_source import other_kind
from holdfast.sources.files.files import FileReader
from holdfast.sources.files.grown import GrownLog, Watched
from holdfast.sources.files.stretches import QUOTED_MAX, Stretch, stretches, whole_rows
from holdfast.sources.files.watched_folder import Folder, Seen, found_twice, is_whole, mark_inflated, mark_used, since
from holdfast.sources.identity import Identity, digest_of
from holdfast.sources.index import IndexedFile, Piece, check_csv, check_json_types, index_file
from holdfast.sources.live.logged_source import Wall
from holdfast.sources.parse import text
from holdfast.sources.parse.quotes import first_row_end
from holdfast.sources.reader import SourceContext, SourceFrame, frame_checksum
from holdfast.sources.reference import Reference, changed
from holdfast.sources.sealed import handed_out, taken_up

__all__ = ["OpenGrowing"]

# How long the source's thread waits before it looks at `stop` and the clock.
LOOK_S = 0.05
# Between two looks at the folder; more where a look takes long: a tenth of a core at most.
POLL_S = 0.5
POLL_SHARE = 10
# A file that is not whole for so long is named by the status.
PATIENCE_S = 10.0

Taken = tuple[IndexedFile, Piece]


class OpenGrowing:
    def __init__(
        self, reader: FileReader, context: SourceContext, listing: Callable[[], Iterable[tuple[str, str]]]
    ) -> None:
        self._reader, self._context = reader, context
        self._arrival = context.time_column is None
        if (context.directory / "files.jsonl").exists():
            raise other_kind(context, "files that end", "files that grow")
        self._log = GrownLog(context.directory)
        self._log.check_reaches(SealJournal(context.directory).last_n())
        self._folder = Folder(listing, self._log.files, self._next_no)
        self._seen = Seen(self._log.files.values())
        self._pending: list[Watched] = []
        self._touched: dict[int, Watched] = {}  # read on since the last seal
        self._indexed: dict[int, IndexedFile] = {}
        self._waited: dict[int, tuple[float, str]] = {}  # since when, and for what
        self._clock = context.clock
        self._wall = Wall(context.monotonic)
        self._newest_us, self._newest_at_s = 0, context.monotonic()
        self._spoke_at_s = time.time()
        self._looked_at_s, self._look_cost_s = -1e9, 0.0
        self._assembly: Assembly | None = None
        self._cutter: Cutter | None = None
        self.bad = 0  # rows that could not be read as declared, in this run
        clear_behind(context.directory / "quarantine", self._log.files, self._log.next_no)

    # -- what the engine calls -----------------------------------------------

    def first_time_us(self, wait_s: float | None = None) -> int | None:
        """None if `wait_s` pass before a row with a time is there. What comes later may be earlier by the grace."""
        if self._arrival:
            return self._wall.now_us()
        until_s = None if wait_s is None else time.monotonic() + wait_s
        spread_us = self._context.grace_us + self._context.frame_us
        while True:
            self._look()
            pieces = (piece for known in self._pending for _, piece in self._pieces(replace(known), dry=True))
            found = earliest(pieces, spread_us)
            if found is not None:
                return found - self._context.grace_us
            if until_s is not None and time.monotonic() >= until_s:
                return None
            time.sleep(LOOK_S)

    def set_clock(self, clock: FrameClock) -> None:
        self._clock = clock
        self._saw(clock.t0_us)

    def seen_until(self) -> int:
        return self._newest_us

    def extent(self) -> int:
        return sum(known.rows for known in self._log.files.values())

    def trim(self, before_n: int) -> None:
        self._log.trim(before_n)

    def close(self) -> None:
        """Nothing is held open between two looks."""

    def away(self) -> str:
        """Nobody can be away: an empty folder is an empty folder."""
        return ""

    def remark(self) -> str:
        """What a status should say of the source now; mostly nothing."""
        now_s = time.time()
        late = [(at_s, why) for at_s, why in list(self._waited.values()) if now_s - at_s >= PATIENCE_S]
        if late:
            at_s, why = min(late)
            more = f" and {len(late) - 1} more" if len(late) > 1 else ""
            return f"waiting since {since(at_s)} for {why}{more}"
        if not self._by_clock:
            patience_s = max((self._context.frame_us + self._context.grace_us) / 1e6, 1.0) + POLL_S
            if now_s - self._spoke_at_s > patience_s:
                return f"silent since {since(self._spoke_at_s)}"
        return ""

    def progress(self) -> str:
        """How many files, how far."""
        files = [known for known in list(self._log.files.values()) if not known.gone]
        left = [
            known
            for known in files
            if (not known.done if is_whole(known.path, known.format) else known.size > known.pos)
        ]
        size = sum(known.size - known.pos for known in left)
        said = f"{len(files):,} file{'s' if len(files) != 1 else ''}"
        return f"{said}, {size:,} bytes of {len(left):,} not read yet" if left else f"{said}, all read"

    def frames(self, stop: threading.Event) -> Iterator[SourceFrame]:
        invariant(self._clock is not None, f"source {self._context.name!r} has no clock yet")
        self._look(self._needed_at_start())
        from_n = self._context.from_n
        yield from handed_out(self._log.sealed(from_n, self._empty, self._here), self._fresh(stop), from_n, stop)

    # -- cutting and sealing -------------------------------------------------

    def _fresh(self, stop: threading.Event) -> Iterator[SourceFrame]:
        log = self._log
        cutter, assembly = taken_up(
            self._context, self._clock, log.state, log.last_n, self._here, by_arrival=self._arrival
        )
        self._cutter, self._assembly = cutter, assembly
        if log.state is not None:
            self._saw(log.state["newest_us"])
            self._wall.not_before(log.state["newest_us"])
        if self._arrival:
            assembly.check_clock(self._wall.now_us())
        lap = self._lap()
        while not stop.is_set():
            taken = next(lap, None)
            if taken is None and time.monotonic() >= self._looked_at_s + max(POLL_S, POLL_SHARE * self._look_cost_s):
                self._look()
                lap = self._lap()
                taken = next(lap, None)
            if taken is None and self._by_clock and self._due() > cutter.closed:
                self._look()
                lap = self._lap()
                taken = next(lap, None)
                if taken is None:  # nothing came before the clock ran out
                    cutter.close(min(self._due(), cutter.closed + CLOSED_AT_ONCE_MAX))
                    yield from self._seal(assembly, cutter, cutter.closed)
            if taken is None:
                stop.wait(LOOK_S)
                continue
            self._spoke_at_s = time.time()
            closed = assembly.add(*taken, cutter)
            self._saw(cutter.newest_us or 0)
            yield from self._seal(assembly, cutter, closed)
            assembly.check()

    def _seal(self, assembly: Assembly, cutter: Cutter, closed: int) -> list[SourceFrame]:
        frames = list(assembly.take(closed))
        if frames:
            state = {"cutter": cutter.state(), "open": assembly.saved(), "newest_us": self._newest_us}
            touched = {no: known for no, known in (self._touched | self._folder.moved).items() if no in self._log.files}
            self._log.seal(frames, state, list(touched.values()))
            self._touched.clear()
            self._folder.moved.clear()
            # Blocks that no open frame has are not referred to again.
            lowest = assembly.open_rows()
            for no, file in list(self._indexed.items()):
                low = lowest.get(id(file))
                if low is None:
                    del self._indexed[no]
                else:
                    file.blocks = [block for block in file.blocks if block[1] > low]
        return frames

    @property
    def _by_clock(self) -> bool:
        return self._arrival or self._context.boundary != "hold"

    def _due(self) -> int:
        """The frame a source that is as far on as the clock would have closed."""
        if self._arrival:
            return self._clock.frame_at(self._wall.now_us()) - 1
        passed_us = int((self._context.monotonic() - self._newest_at_s) * 1e6)
        return self._clock.frame_at(self._newest_us + passed_us - self._context.grace_us) - 1

    def _saw(self, time_us: int) -> None:
        if time_us > self._newest_us:
            self._newest_us, self._newest_at_s = time_us, self._context.monotonic()

    def _empty(self, n: int) -> SourceFrame:
        return SourceFrame(n, (), 0, 0, frame_checksum(n, self._clock.boundary_us(n), self._context.schema, ()), 0)

    def _here(self, reference: Reference) -> Reference:
        """A reference that was written down, to the file as it is called now."""
        known = self._log.files.get(reference.no)
        return reference if known is None else replace(reference, path=known.path, ino=known.ino)

    # -- looking -------------------------------------------------------------

    def _look(self, needed: Callable[[Watched], list[int]] | None = None) -> None:
        began_s = time.monotonic()
        self._pending = self._folder.look(needed or self._needed_now)
        self._looked_at_s = time.monotonic()
        self._look_cost_s = self._looked_at_s - began_s
        for no, file in self._indexed.items():  # a file that moved takes its open frames along
            if no in self._log.files:
                file.path, file.ino = self._log.files[no].path, self._log.files[no].ino
        for no in [no for no in self._waited if no not in self._log.files]:
            del self._waited[no]

    def _needed_at_start(self) -> Callable[[Watched], list[int]]:
        needed = self._log.needed(self._context.from_n)
        return lambda known: needed.get(known.no, [])

    def _needed_now(self, known: Watched) -> list[int]:
        """Frames that are not sealed yet; those that are and were not made yet are missed by who makes them."""
        if self._assembly is None:
            return self._needed_at_start()(known)
        return self._assembly.open_files().get(known.no, [])

    def _next_no(self) -> int:
        self._log.next_no += 1
        return self._log.next_no - 1

    # -- reading on ----------------------------------------------------------

    def _lap(self) -> Iterator[Taken]:
        pending, self._pending = self._pending, []
        for known in pending:
            yield from self._pieces(known)

    def _pieces(self, known: Watched, dry: bool = False) -> Iterator[Taken]:
        """What can be taken of a file now. `dry`: it is only looked at."""
        if is_whole(known.path, known.format):
            return self._of_whole(known, dry)
        return self._of_text(known, dry)

    def _of_text(self, known: Watched, dry: bool) -> Iterator[Taken]:
        options = self._reader.options_for(known.path, known.format)
        missing = options.pop("missing", "error")
        mark = text.csv_mark(known.format, options)
        if not known.pos and not self._begin(known, options, mark):
            return
        while True:
            block = text.read_bytes(known.path, known.pos, known.pos + text.BLOCK_BYTES)
            end = whole_rows(block, mark)
            if not end and len(block) == text.BLOCK_BYTES:
                block = text.read_bytes(known.path, known.pos, known.pos + text.ROW_BYTES_MAX)
                end = whole_rows(block, mark)
                if not end and len(block) == text.ROW_BYTES_MAX:
                    raise text.bad_row(known.path, known.pos, "a line of more than 64 MB")
            waits = _awaited(known, block[end:], known.pos + end)
            if not end:
                self._waits(known, waits)
                return
            fails = self._context.bad == "fail"
            named = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in known.options)
            where = (named, self._context.schema, known.path, known.pos)
            found = stretches(block, end, known.format, *where, missing=str(missing), first_only=fails)
            if (yield from self._of_stretches(known, block, named, found, dry)):
                return
            self._waits(known, waits)

    def _begin(self, known: Watched, options: dict, mark: re.Pattern[bytes] | None) -> bool:
        """Read the header, if there is one; False while it is not whole."""
        if known.format == "csv":
            if options.get("header", True):
                head = text.read_bytes(known.path, 0, text.BLOCK_BYTES)
                end = first_row_end(head, mark)
                if not head[:end].endswith(b"\n"):
                    self._waits(known, f"the header of {known.path}")
                    return False
                text.header_end(head, mark, known.path)
                mark_used(known, end)
            options = options | {"columns": text.csv_columns(known.path, options, self._context.schema)}
            check_csv(options["columns"], self._context.schema, known.path)
        else:
            check_json_types(self._context.schema, known.path)
        known.options = [[name, list(value) if isinstance(value, tuple) else value] for name, value in options.items()]
        return True

    def _of_stretches(
        self, known: Watched, block: bytes, options: tuple, found: list[Stretch], dry: bool
    ) -> Generator[Taken, None, bool]:
        """True: it must be waited for."""
        base = known.pos
        if self._context.bad == "quarantine" and not dry and any(each.bad for each in found):
            set_aside(self._context.directory / "quarantine", known, base, found)
        for each in found:
            if each.bad is not None:
                if not dry and self._context.bad == "fail":
                    raise each.bad.error
                mark_used(known, base + each.stop)
                if not dry:
                    self.bad += 1
                    self._touched[known.no] = known
                continue
            if not known.row and each.table.num_rows:
                known.row = _row_mark(block, each.start)
                if not dry and self._is_being_copied(known):
                    known.row = ""
                    return True
            yield from self._of_stretch(known, block[each.start : each.stop], base + each.start, options, each, dry)
        return False

    def _of_stretch(
        self, known: Watched, block: bytes, byte: int, options: tuple, each: Stretch, dry: bool
    ) -> Iterator[Taken]:
        file = self._indexed.get(known.no) if not dry else None
        if file is None:
            file = IndexedFile(
                known.path, known.format, 0, 0, "", options, known.rows, ino=known.ino, no=known.no, grows=True
            )
        table, error = each.table, None
        piece = self._piece(known.rows, table.num_rows, table)
        stops = self._stops(file, piece, dry)
        if stops is not None:
            at, error = stops
            mark = text.csv_mark(known.format, dict(options))
            block, table = block[: text.row_start(block, at, known.format, mark, QUOTED_MAX)], table.slice(0, at)
            piece = self._piece(known.rows, at, table)
        if block:
            if table.num_rows:
                file.blocks.append(
                    (known.rows, known.rows + table.num_rows, byte, byte + len(block), text.digest(block))
                )
            known.rows += table.num_rows
            file.rows = known.rows
            file.size = byte + len(block)
            mark_used(known, byte + len(block))
            if not dry:
                self._touched[known.no] = known
                self._indexed[known.no] = file
            if table.num_rows:
                yield file, piece
        if error is not None:
            raise error

    def _of_whole(self, known: Watched, dry: bool) -> Iterator[Taken]:
        try:
            options = self._reader.options_for(known.path, known.format)
            before, length = _Before(known), 0
            if known.format != "parquet" and (length := _inflated_bytes(known.path)) is None:
                raise EOFError
            file, pieces = index_file(
                known.path, known.format, options, self._context.schema, self._context.time_column, before
            )
        except (EOFError, SourceError) as error:
            if isinstance(error, SourceError) and error.code not in ("HF-S005", "HF-S001"):
                raise
            self._waits(known, f"{known.path} to be whole")
            return
        self._waits(known, "")
        if not dry:
            known.whole = file.digest or digest_of(known.path)
            now = Identity(file.size, file.mtime_ns, file.ctime_ns)
            known.size, known.mtime_ns, known.ctime_ns = now.size, now.mtime_ns, now.ctime_ns
            if not known.rows:
                if length:
                    mark_inflated(known, length, self._first_row(known, options))
                if self._is_being_copied(known):
                    return
        file.ino, file.no = known.ino, known.no
        for found in pieces:
            skip = max(0, known.rows - found.start)
            if skip >= found.rows:
                continue
            piece = self._part(found, skip, found.rows)
            if not dry:
                stops = self._stops(file, piece, dry)
                rows = piece.rows if stops is None else stops[0]
                known.rows = piece.start + rows
                self._touched[known.no] = known
                if rows:
                    yield file, self._part(found, skip, skip + rows)
                if stops is not None:
                    raise stops[1]
            else:
                yield file, piece
        if not dry:
            known.done = True
            self._touched[known.no] = known

    def _first_row(self, known: Watched, options: dict) -> str:
        """The mark of a .gz file's first row; '' if it has none."""
        head, mark = text.read_bytes(known.path, 0, text.BLOCK_BYTES), text.csv_mark(known.format, options)
        start = text.header_end(head, mark, known.path) if known.format == "csv" and options.get("header", True) else 0
        return _row_mark(head, start) if head[start:].strip() else ""

    def _is_being_copied(self, known: Watched) -> bool:
        """HF-S062 if it is a copy of what was read; True if it may become one: it has no row yet that the other has not."""
        found = self._seen.copied(known)
        if found is not None:
            other, is_all = found
            if is_all or known.whole:
                raise found_twice(known, other)
            self._waits(known, f"{known.path} to hold a row that was not read from {other.path}")
            return True
        self._seen.add(known)
        return False

    def _part(self, piece: Piece, start: int, stop: int) -> Piece:
        if self._arrival:
            return self._piece(piece.start + start, stop - start, None)
        if (start, stop) == (0, piece.rows):
            return piece
        return Piece(piece.start + start, stop - start, lambda: piece.times_us[start:stop])

    def _piece(self, start: int, rows: int, table: Any) -> Piece:
        if self._arrival:
            return Piece(start, rows, partial(np.full, rows, self._wall.now_us(), dtype=np.int64))
        return Piece(start, rows, partial(times_of, table.column(self._context.time_column)))

    def _stops(self, file: IndexedFile, piece: Piece, dry: bool) -> tuple[int, SourceError] | None:
        """Where the source stops in this piece. What lies before is used; the row itself may be corrected."""
        if dry or self._arrival or not piece.rows:
            return None
        return self._assembly.would_stop(file, piece, self._cutter)

    def _waits(self, known: Watched, what: str) -> None:
        if not what:
            self._waited.pop(known.no, None)
        else:
            since_s = self._waited[known.no][0] if known.no in self._waited else time.time()
            self._waited[known.no] = (since_s, what)


class _Before:
    """Nothing is compared here: `watching` has done so."""

    def __init__(self, known: Watched) -> None:
        self._known = known

    def whole(self, path: str, now: Identity) -> str | None:
        return self._known.whole or None

    def points(self, path: str) -> list[tuple[int, str]]:
        return []

    def changed(self, path: str, why: str) -> SourceError:
        return changed(path, why, self._known.rows)


def _awaited(known: Watched, rest: bytes, byte: int) -> str:
    """What is waited for behind the last whole row; '' if nothing is there."""
    if b"\n" in rest:
        return f"a quote to be closed in {known.path}, in the row at byte {byte:,}"
    return f"the end of a line in {known.path}, after byte {byte:,}" if rest else ""


def _row_mark(block: bytes, start: int) -> str:
    return text.digest(block[start : first_row_end(block, None, start)])


def _inflated_bytes(path: str) -> int | None:
    """How long the text of a .gz file is; None if the file is not whole."""
    length = 0
    try:
        with gzip.open(path, "rb") as file:
            while more := file.read(1 << 20):
                length += len(more)
    except (OSError, EOFError, zlib.error):
        return None
    return length
