"""Names of what reads a stream, and of the edge over which it does: values with one text form each.

The text forms are what journals, manifests and `status` hold, so they do not change:
`alarms` is a unit, `sink alarms` a sink; `pulse>alarms` is an edge, `pulse>alarms@2` one
that brings each frame two frames late.

Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Consumer", "EdgeId"]

_SINK = "sink "


@dataclass(frozen=True, slots=True)
class Consumer:
    """A unit or a sink. A unit and a sink of one name are two consumers."""

    kind: Literal["unit", "sink"]
    name: str

    @classmethod
    def unit(cls, name: str) -> Consumer:
        return cls("unit", name)

    @classmethod
    def sink(cls, name: str) -> Consumer:
        return cls("sink", name)

    @classmethod
    def parse(cls, text: str) -> Consumer:
        return cls.sink(text.removeprefix(_SINK)) if text.startswith(_SINK) else cls.unit(text)

    @property
    def is_sink(self) -> bool:
        return self.kind == "sink"

    def __str__(self) -> str:
        return f"{_SINK}{self.name}" if self.is_sink else self.name


@dataclass(frozen=True, eq=False)
class EdgeId:
    """A stream, who reads it, and how many frames late (0 except over a feedback edge)."""

    stream: str
    consumer: Consumer
    delay: int = 0
    _text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        late = f"@{self.delay}" if self.delay else ""
        # Machines look edges up all the time: the text is made once, and so is its hash.
        object.__setattr__(self, "_text", f"{self.stream}>{self.consumer}{late}")

    @classmethod
    def parse(cls, text: str) -> EdgeId:
        stream, arrow, rest = text.partition(">")
        consumer, late, delay = rest.rpartition("@")
        if not late:
            consumer, delay = rest, "0"
        if not arrow or not stream or not consumer or not delay.isdecimal():
            raise ValueError(f"{text!r} names no edge")
        return cls(stream, Consumer.parse(consumer), int(delay))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<{self._text}>"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, EdgeId) and self._text == other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[EdgeId], tuple[str, Consumer, int]]:
        return (EdgeId, (self.stream, self.consumer, self.delay))
