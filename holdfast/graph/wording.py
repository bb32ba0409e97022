"""Short words for vertices, shared by the terminal text and the picture. Pure."""

from __future__ import annotations

from typing import Any

from holdfast.graph.durations import show_ms
from holdfast.graph.model import Graph, Operator

__all__ = ["count", "described", "outside", "readers_of"]


def count(n: int, word: str) -> str:
    return f"{n} {word}" + ("" if n == 1 else "s")


def outside(vertex: Any) -> str:
    """What a reader or writer says of itself."""
    describe = getattr(vertex, "describe", None)
    return str(describe()) if callable(describe) else type(vertex).__name__


def described(operator: Operator) -> str:
    """The part of its options that people look for."""
    options = operator.options
    words: list[str] = []
    match operator.kind:
        case "keyed":
            words.append("per " + ", ".join(options["keys"]))
        case "aggregate":
            words.append(", ".join(f"{fn}({expr})" if expr else fn for fn, expr in options["emits"].values()))
            if options["by"]:
                words.append("per " + ", ".join(options["by"]))
            words.append(_window(options))
        case "join":
            words.append(f"{options['how']} on {', '.join(options['on'])} within {show_ms(options['within_ms'])}")
        case "split":
            words.append(", ".join(f"{port}: {text}" for port, text in options["into"].items()))
        case "filter":
            words.append(options["where"])
        case "map":
            words.append(", ".join(options["select"]))
        case "stream":
            words.append(f"mode {options['mode']}")
    if operator.params:
        words.append("takes " + ", ".join(operator.params))
    if operator.delay_ms_max is not None:
        words.append(f"at most {show_ms(operator.delay_ms_max)}")
    if operator.approximate:
        words.append("approximate")
    return ", ".join(word for word in words if word)


def _window(options: dict[str, Any]) -> str:
    if options["session_ms"] is not None:
        return f"session, gap {show_ms(options['session_ms'])}"
    for unit, show in (("ms", show_ms), ("rows", lambda n: count(n, "row"))):
        window, every = options[f"window_{unit}"], options[f"every_{unit}"]
        if window is not None:
            return f"over {show(window)}" + (f" every {show(every)}" if every != window else "")
    return "running"


def readers_of(graph: Graph, stream: str) -> str:
    names = [edge.consumer for edge in graph.consumers_of(stream)]
    names += [f"sink {sink.name}" for sink in graph.sinks_of(stream)]
    return ", ".join(dict.fromkeys(names)) or "nobody (disabled)"
