"""Quarantined rows that are put back: files in `put-back/` of the source's folder, logged as new elements.

Whoever puts rows back (`holdfast quarantine put-back`) writes `NAME.parquet` there,
under another name first, then renamed. The open source logs each file as one
ingest batch whose note holds the file's name, then deletes the file. A crash in
between leaves both, and the note says that the rows are in the log already.

A file that does not fit becomes `NAME.refused`, and `NAME.json` says why: `holdfast quarantine` lists it, and it can be
put back again.

A row that was ahead of the clock, and still is, waits here until its time has come.
A row that was late once is late again: put back, it is admitted into the lowest
open frame whatever `late=` says, for somebody has decided.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from holdfast.atomic import put_in_place, write_whole
from holdfast.errors import HoldfastError, SourceError
from holdfast.frames.cut import is_time, times_of
from holdfast.graph.schemas import Schema
from holdfast.journals.asides import read_aside
from holdfast.journals.notes import as_note
from holdfast.sources.live.ahead import Ahead
from holdfast.sources.live.log import SourceLog
from holdfast.sources.parse.fit import check_fits, fit

__all__ = ["PutBack", "is_ahead"]

_log = logging.getLogger("holdfast.sources")
#: As `holdfast quarantine put-back` names rows that were ahead of the clock.
_AHEAD = re.compile(r".*-ahead-\d+\.parquet")


def is_ahead(path: Path) -> bool:
    """Whether the rows were ahead of the clock, so that they were never logged before."""
    return _AHEAD.fullmatch(path.name) is not None


class PutBack:
    def __init__(
        self,
        folder: Path,
        log: SourceLog,
        schema: Schema,
        time_column: str | None,
        ahead: Ahead | None = None,
        jump_in: Callable[[pa.Table], tuple[int, SourceError] | None] = lambda table: None,
    ) -> None:
        """`jump_in`: the row that would stop the source, and what that says."""
        self._folder, self._schema, self._time, self._ahead = folder, schema, time_column, ahead
        self._jump_in = jump_in
        self._waiting: set[str] = set()  # names of files that were said to wait
        if left := self._files():
            done = {chunk.note.get("put_back") for chunk in log.chunks()}
            for path in left:
                if path.name in done:
                    path.unlink()

    def next(self) -> tuple[Path, pa.Table] | None:
        """A file and its rows; one that does not fit is set aside and named in the log."""
        for path in self._files():
            try:
                table = self._read(path)
                if not self._waits(path, table):
                    if (jump := self._jump_in(table)) is not None:
                        raise jump[1]
                    return path, table
            except (HoldfastError, pa.ArrowException, OSError) as error:
                write_whole(path.with_suffix(".json"), as_note({"why": str(error).splitlines()[0]}), sync=True)
                put_in_place(path, path.with_suffix(".refused"), sync=True)
                _log.warning(
                    "%s was not put back and is set aside as .refused (holdfast quarantine ls): %s", path, error
                )
        return None

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet")) if self._folder.is_dir() else []

    def _read(self, path: Path) -> pa.Table:
        table = read_aside(path)
        check_fits(table.schema, self._schema, str(path))
        table = fit(table, self._schema, str(path))
        if self._time is not None:
            times = times_of(table.column(self._time))
            if not is_time(times).all():
                raise SourceError("HF-S007", "TimeMissing", "a row has no time.", where=str(path))
        return table

    def _waits(self, path: Path, table: pa.Table) -> bool:
        """Whether a row is still ahead of the clock: its file waits here until its time has come."""
        if self._ahead is None or self._ahead.far(table) is None:
            return False
        if path.name not in self._waiting:
            self._waiting.add(path.name)
            _log.warning("%s waits: a row is still more than %s ahead of the clock", path, self._ahead.bound)
        return True
