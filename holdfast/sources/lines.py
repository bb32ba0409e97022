"""Lines that scripts send, over TCP or by HTTP POST, as a source: answered when they are on disk.

Here is the declaration; `listening` and `ingest` do the work. It opens no
socket, so that `check` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.graph.schemas import Schema
from holdfast.sources.addresses import address_of

if TYPE_CHECKING:
    from holdfast.sources.ingest import OpenFeed
    from holdfast.sources.reader import SourceContext

__all__ = ["LineReader"]

_EXAMPLE = "tcp://127.0.0.1:9000"


class LineReader:
    """Made by `hf.read.lines`. Declares; listens to nothing."""

    reliable = False
    bounded = False

    def __init__(
        self, url: str, *, format: str, delimiter: str, id: str | None, missing: str, open_to_network: bool
    ) -> None:
        self.address = address_of(url, {"tcp": None, "http": None}, _EXAMPLE)
        self.format, self.delimiter, self.id, self.missing = format, delimiter, id, missing
        if format not in ("json", "csv"):
            raise UsageError(
                "HF-C034",
                "NotASetting",
                f"format={format!r} is none of 'json' and 'csv'.",
                effect="nothing was declared",
                do="take format='json' (an object a line) or format='csv' (columns as declared, no header)",
            )
        if not self.address.is_loopback and not open_to_network:
            raise UsageError(
                "HF-C034",
                "NotASetting",
                f"{self.address} can be reached from other machines.",
                why="lines are neither encrypted nor is anybody asked who sends them",
                effect="nothing was declared",
                do="listen on 127.0.0.1, or say open_to_network=True where the network is your own",
            )

    def describe(self) -> str:
        return f"{self.format} lines at {self.address}/{self.address.path}".rstrip("/")

    def check_schema(self, source: str, schema: Schema) -> None:
        if self.id is not None and self.id not in schema:
            raise UsageError(
                "HF-C034",
                "NotASetting",
                f"column '{self.id}' of id= is not in the schema of source '{source}'.",
                why=f"its columns are {schema.ddl}",
                effect="nothing was declared",
                do=f"add '{self.id} string' to schema=",
            )

    def open(self, context: SourceContext) -> OpenFeed:
        from holdfast.sources.ingest import OpenFeed
        from holdfast.sources.listening import LineFeed

        feed = LineFeed(self.address, context.name, self.format, self.delimiter, context.directory / "listening")
        return OpenFeed(feed, context, bounded=False, id_column=self.id, missing=self.missing)
