"""Rows left out of a frame because an operator raises on them, written down before they are.

The decision is part of the input: a frame that is taken again is taken without the
same rows, and comes out the same. So it is synced, one file per frame, before the
frame is tried without them:

    units/NAME/quarantine/00000041.json   {"frame", "operator", "ports": {port: [[from, to), ...]}, "error", ...}
    units/NAME/quarantine/00000041-PORT.parquet   the rows themselves (on_error="quarantine"); of a second
                                          decision about the same frame 00000041-PORT.2.parquet, and so on

Ranges count rows of what the frame was made of. If that is made again and comes out otherwise
(`holdfast remake`), the same places are other rows: what was decided no longer holds, and
is decided anew if the frame raises (`of`).

`holdfast quarantine` reads both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.atomic import drafted, make_folder, write_whole
from holdfast.journals.asides import write_aside
from holdfast.journals.notes import as_note, read_note

__all__ = ["Exclusions"]


class Exclusions:
    def __init__(self, unit_folder: Path) -> None:
        self._folder = unit_folder / "quarantine"
        self._known: dict[int, dict[str, Any]] = {}
        for path in sorted(self._folder.glob("*.json")):
            record = read_note(
                path,
                effect="nothing was started: the frame would be taken with rows it was decided to leave out",
                do="put the file back from a copy; without one delete it: the frame is taken whole, and decided anew if it raises",
            )
            record.setdefault("decisions", [record])
            self._known[record["frame"]] = record

    def at(self, n: int, of: dict[str, str] | None = None) -> dict[str, list[list[int]]]:
        """Ranges of rows per port that frame n is taken without. `of`: by stream, the checksum of what is taken now."""
        if n not in self._known:
            return {}
        decided = self._known[n].get("of") or {}
        if of is not None and any(of.get(stream, was) != was for stream, was in decided.items()):
            return {}
        return self._known[n]["ports"]

    def left_out(self, n: int) -> int:
        """How many rows frame n is taken without."""
        return sum(each["rows"] for each in self._known[n]["decisions"]) if n in self._known else 0

    def rows(self, on_error: str) -> dict[str, int]:
        """Rows left out so far under this declaration, by operator."""
        found: dict[str, int] = {}
        for record in self._known.values():
            for each in record["decisions"]:
                if each["on_error"] == on_error:
                    found[each["operator"]] = found.get(each["operator"], 0) + each["rows"]
        return found

    def decide(
        self,
        n: int,
        ports: dict[str, list[list[int]]],
        tables: dict[str, pa.Table],
        record: dict[str, Any],
        of: dict[str, str] | None = None,
    ) -> None:
        """From now on frame n is taken without these rows. `tables`: the rows, where they are to be kept; `of`: as in `at`."""
        make_folder(self._folder, sync=True, mode=0o700)
        decisions = [*(self._known[n]["decisions"] if n in self._known else ()), record]
        # Once without them, the frame may raise on others: each decision has files of its own.
        again = f".{len(decisions)}" if len(decisions) > 1 else ""
        for port, table in tables.items():
            _write_parquet(self._folder / f"{n:08d}-{port}{again}.parquet", table)
        whole_record = {"frame": n, "ports": ports, **({"of": of} if of else {}), **record, "decisions": decisions}
        text = as_note(whole_record, indent=1)
        write_whole(self._folder / f"{n:08d}.json", text, sync=True)
        self._known[n] = whole_record


def _write_parquet(final: Path, table: pa.Table) -> None:
    with drafted(final, sync=True) as draft:
        write_aside(draft, table)
