"""A topic of an MQTT broker as a source: every message is acknowledged after its rows are on disk.

Here is the declaration; `broker` and `ingest` do the work. It imports no MQTT
client and opens nothing, so that `check` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.graph.schemas import Schema
from holdfast.graph.secrets import Secret
from holdfast.sources.connectors.addresses import Topic, address_of
from holdfast.sources.connectors.ids import check_id, check_sent

if TYPE_CHECKING:
    from holdfast.sources.live.logged_source import OpenFeed
    from holdfast.sources.reader import SourceContext

__all__ = ["MqttReader"]

_EXAMPLE = "mqtts://broker:8883/ward4/{patient}/ecg"


class MqttReader:
    """Made by `hf.read.mqtt`. Declares; connects to nothing."""

    reliable = False
    bounded = False

    def __init__(
        self,
        url: str,
        *,
        login: Secret | str | None,
        qos: int,
        id: str | None,
        client_id: str | None,
        ca: str | None,
        missing: str,
    ) -> None:
        self.address = address_of(url, {"mqtt": 1883, "mqtts": 8883}, _EXAMPLE)
        self.topic = Topic(self.address.path, _EXAMPLE)
        self.login, self.id, self.client_id, self.ca, self.missing = login, id, client_id, ca, missing
        if qos != 1:
            raise UsageError(
                "HF-C034",
                "NotASetting",
                f"qos={qos!r} is not offered.",
                why="0 loses messages nobody can see; 2 costs two more round trips and, as a row is logged here "
                "before it is acknowledged, promises no more than 1 with id=",
                effect="nothing was declared",
                do="leave it out: qos=1",
            )

    def describe(self) -> str:
        return f"{self.address}/{self.address.path}, qos 1"

    def check_schema(self, source: str, schema: Schema) -> None:
        """The columns of the topic and of id= must be declared."""
        for column, whence in [*((each, "the topic") for each in self.topic.columns), (self.id, "id=")]:
            if column is not None and column not in schema:
                raise UsageError(
                    "HF-C034",
                    "NotASetting",
                    f"column '{column}' of {whence} is not in the schema of source '{source}'.",
                    why=f"its columns are {schema.ddl}",
                    effect="nothing was declared",
                    do=f"add '{column} string' to schema=",
                )
        check_id(self.id, source, schema)
        check_sent("json", source, schema)

    def open(self, context: SourceContext) -> OpenFeed:
        from holdfast.sources.connectors.mqtt_client import MqttFeed
        from holdfast.sources.live.logged_source import OpenFeed

        login = self.login.open() if isinstance(self.login, Secret) else self.login
        feed = MqttFeed(
            self.address,
            self.topic,
            source=context.name,
            client_id=self.client_id or f"holdfast-{context.process}-{context.name}",
            login=login,
            ca=self.ca,
            known_file=context.directory / "subscribed.json",
            # Equal bytes with one time are one element; without a time a sensor may well say the same twice.
            tells_repeats=context.time_column is not None,
        )
        return OpenFeed(feed, context, bounded=False, id_column=self.id, missing=self.missing)
