"""What the sinks below a source cannot hold, so that the source can refuse it before it is logged.

A value that no table takes stops its sink for ever, for the frame is sealed. Which columns
of a source reach which column of a sink cannot be told through operators, so what any sink
below cannot hold counts for all columns of the source.

Pure.
"""

from __future__ import annotations

from holdfast.graph.model import Graph

__all__ = ["AFTER_9999", "BEFORE_1", "NUL", "not_held_below"]

NUL = "a text with the sign NUL"
BEFORE_1 = "a year before 1"
AFTER_9999 = "a year after 9999"


def not_held_below(graph: Graph, source: str) -> dict[str, str]:
    """What is not held, and the first sink that does not; empty where every sink holds everything."""
    seen, todo = {source}, [source]
    found: dict[str, str] = {}
    while todo:
        stream = todo.pop()
        for sink in graph.sinks_of(stream):
            for what in getattr(sink.writer, "cannot_hold", ()):
                found.setdefault(what, sink.name)
        for edge in graph.consumers_of(stream):
            for output in graph.operator(edge.consumer).outputs:
                if output not in seen:
                    seen.add(output)
                    todo.append(output)
    return found
