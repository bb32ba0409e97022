"""Lines that scripts send, over TCP or by HTTP POST, as a source: answered when they are on disk.

Here is the declaration; `listening` and `ingest` do the work. It opens no
socket, so that `check` stays quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.graph.schemas import Schema
from holdfast.graph.secrets import Secret
from holdfast.sources.connectors.addresses import address_of
from holdfast.sources.connectors.door import Limits
from holdfast.sources.connectors.ids import check_id, check_sent

if TYPE_CHECKING:
    from holdfast.sources.live.logged_source import OpenFeed
    from holdfast.sources.reader import SourceContext

__all__ = ["LineReader"]

_EXAMPLE = "tcp://127.0.0.1:9000"


class LineReader:
    """Made by `hf.read.lines`. Declares; listens to nothing."""

    reliable = False
    bounded = False

    def __init__(
        self,
        url: str,
        *,
        format: str,
        delimiter: str,
        id: str | None,
        missing: str,
        open_to_network: bool,
        token: Secret | str | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        connections: int = 256,
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
        self.token, self.hosts, self.origins = token, _names(hosts, "hosts"), _names(origins, "origins")
        self.connections = connections
        if isinstance(token, str):
            _checked(token)
        if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
            raise _not_a_setting(
                f"connections={connections!r} is no number of connections.", "take a whole number of at least 1"
            )
        if self.address.scheme == "tcp" and (self.hosts or self.origins):
            raise _not_a_setting(
                "hosts= and origins= mean nothing to tcp://.", "drop them: only HTTP says for whom a request is"
            )
        if not self.address.is_loopback and not open_to_network:
            raise UsageError(
                "HF-C034",
                "NotASetting",
                f"{self.address} can be reached from other machines.",
                why="lines are not encrypted, and nobody is asked who sends them unless token= is declared",
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
        check_id(self.id, source, schema)
        check_sent(self.format, source, schema)

    def open(self, context: SourceContext) -> OpenFeed:
        from holdfast.sources.connectors.listening import LineFeed
        from holdfast.sources.live.logged_source import OpenFeed

        token = _checked(self.token.open()) if isinstance(self.token, Secret) else self.token
        feed = LineFeed(
            self.address,
            context.name,
            self.format,
            self.delimiter,
            context.directory / "listening",
            token=token,
            hosts=self.hosts,
            origins=self.origins,
            limits=Limits(connections=self.connections),
        )
        return OpenFeed(feed, context, bounded=False, id_column=self.id, missing=self.missing)


def _checked(token: str) -> str:
    """Of a secret only when it is opened. Never shown."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _not_a_setting(
            "token= is empty or holds a blank, a line end or a sign that is not ASCII.",
            "take e.g. 32 hex digits: openssl rand -hex 16",
        )
    return token


def _names(names: Any, what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(each, str) and each for each in names):
        raise _not_a_setting(f"{what}={names!r} is no list of names.", f"write {what}=['probes.example.org']")
    return tuple(names)


def _not_a_setting(what: str, do: str) -> UsageError:
    return UsageError("HF-C034", "NotASetting", what, effect="nothing was declared", do=do)
