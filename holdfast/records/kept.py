"""A state folder as a reader finds it: journals, queues and source logs, nothing changed.

Everything `holdfast trace`, `du` and `quarantine` show comes through here. It works
on the folder of a run that goes on, of one that was killed, and of a copy elsewhere.
"""

from __future__ import annotations

import difflib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, UsageError
from holdfast.journals.incidents import Incident, incidents_of
from holdfast.journals.journal import Journal
from holdfast.journals.lock import is_held
from holdfast.journals.notes import read_note
from holdfast.journals.seals import seals_of

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.frames.identity import FrameRecord
    from holdfast.graph.schemas import Schema

__all__ = ["Kept"]


class Kept:
    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        note = self.root / "deployment.json"
        if not note.is_file():
            raise UsageError(
                "HF-E014",
                "NoStateHere",
                "this is no state folder of a process that has run.",
                where=str(self.root),
                why="it has no deployment.json",
                effect="nothing was read or changed",
                do="name the process or its file, in the folder it was started in; or say --state DIR",
            )
        self.deployment: dict[str, Any] = read_note(
            note, effect="nothing was read or changed", do="put the file back from a copy"
        )

    @property
    def process(self) -> str:
        return self.deployment["process"]

    @property
    def hides_values(self) -> bool:
        return self.deployment.get("values") == "hide"

    @cached_property
    def in_use(self) -> bool:
        return is_held(self.root / "lock")

    # ---- streams ----

    @cached_property
    def sources(self) -> tuple[str, ...]:
        made = self.deployment.get("streams", {})
        named = self.deployment.get("sources")
        return tuple(named) if named is not None else tuple(s for s in self.deployment["schemas"] if s not in made)

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Sources, then what units make, in the order of the deployment."""
        return (*self.sources, *self.deployment.get("streams", {}))

    def checked(self, stream: str) -> str:
        """The stream meant: its own name, or that of the unit that seals it."""
        if stream not in self.streams and len(made := self._outputs(stream)) == 1:
            return made[0]
        if stream not in self.streams:
            close = difflib.get_close_matches(stream, self.streams, 1)
            inner = [name for name in self.deployment.get("operators", {}) if name == stream]
            unit = next((u for u, own in self.deployment["units"].items() if stream in own), "")
            raise UsageError(
                "HF-E015",
                "UnknownStream",
                f"no stream {stream!r} is sealed by process {self.process!r}.",
                where=str(self.root),
                why=f"it stays inside unit {unit!r}, which seals {', '.join(self._outputs(unit))}"
                if inner
                else f"streams are: {', '.join(self.streams)}",
                effect="nothing was read",
                do=f"did you mean {close[0]!r}?" if close and not inner else "name one of them",
            )
        return stream

    def _outputs(self, unit: str) -> list[str]:
        return [stream for stream, maker in self.deployment["streams"].items() if maker == unit]

    def schema(self, stream: str) -> Schema:
        from holdfast.graph.schemas import Schema

        return Schema.of(self.deployment["schemas"][stream])

    def unit_of(self, stream: str) -> str:
        return self.deployment.get("streams", {}).get(stream, "")

    # ---- journals ----

    def commits(self, unit: str) -> list[dict[str, Any]]:
        return self._journal("units", unit, "commits")

    def permits(self, unit: str) -> list[dict[str, Any]]:
        return self._journal("units", unit, "permits")

    def _journal(self, kind: str, name: str, journal: str) -> list[dict[str, Any]]:
        folder = self._folder(kind, name)
        return list(Journal(folder, journal).entries()) if folder.is_dir() else []

    def _folder(self, kind: str, name: str) -> Path:
        """On the host it lives on, or in the state folder."""
        return Path(self.deployment.get("homes", {}).get(f"{kind}/{name}", self.root / kind / name))

    @cached_property
    def _seals(self) -> dict[str, dict[int, dict[str, Any]]]:
        return {name: {each["n"]: each for each in seals_of(self.root / "sources" / name)} for name in self.sources}

    def seals(self, source: str) -> dict[int, dict[str, Any]]:
        """Frames a source has sealed, by number, with their references."""
        return self._seals.get(source, {})

    @cached_property
    def incidents(self) -> list[Incident]:
        return incidents_of(self.root)

    # ---- rows ----

    def queued(self, stream: str) -> dict[int, Path]:
        """Frames of a stream between units that are still in its queue."""
        from holdfast.frames.files import list_frames

        folder = self._folder("streams", stream)
        return {n: path for n, _, path in list_frames(folder)} if folder.is_dir() else {}

    def record(self, stream: str, n: int) -> FrameRecord | None:
        from holdfast.frames.files import read_record

        path = self.queued(stream).get(n)
        try:
            return None if path is None else read_record(path)
        except HoldfastError:
            return None  # forgotten between listing and reading

    def rows(self, stream: str, n: int) -> tuple[pa.Table | None, str]:
        """The rows of a frame, and "" or why they cannot be had any more."""
        import pyarrow as pa

        from holdfast.frames.files import read_frame

        if stream not in self.sources:
            path = self.queued(stream).get(n)
            if path is None:
                return None, "no longer queued: every consumer has it"
            try:
                return read_frame(path)[1], ""
            except HoldfastError as error:
                return None, error.what
        seal = self.seals(stream).get(n)
        if seal is None:
            return None, "not among the frames this source's journal keeps"
        if any("scattered" in each for each in seal["references"]):
            return None, "its rows lie scattered over too many places to be written down"
        from holdfast.sources.reference import Reference, load

        schema = self.schema(stream)
        try:
            batches = [batch for each in seal["references"] for batch in load(Reference.from_json(each), schema)]
        except HoldfastError as error:
            return None, f"{error.what} {error.where}"
        return pa.Table.from_batches(batches, schema.arrow), ""

    def frames_kept(self, stream: str) -> list[int]:
        """Numbers of the frames whose rows may still be had."""
        return sorted(self.seals(stream) if stream in self.sources else self.queued(stream))
