"""A decorated function as a source: one that takes `spark` returns a streaming DataFrame, others yield."""

from __future__ import annotations

from typing import Any

from holdfast.graph.declared import refuse
from holdfast.sources.connectors.iterators import IteratorReader
from holdfast.sources.connectors.spark_streams import SparkReader

__all__ = ["reader_of"]


def reader_of(function: Any, ports: tuple[str, ...]) -> Any:
    """A decorated function as a reader: one that takes `spark` returns a streaming DataFrame, others yield."""
    if ports and ports[0] == "spark":
        if len(ports) > 1:
            raise refuse(
                "HF-C004",
                "BadSignature",
                f"source '{function.__name__}' takes ({', '.join(ports)}).",
                why="a source over a Spark stream is handed the session and nothing else",
                do=f"def {function.__name__}(spark): return spark.readStream...",
            )
        return SparkReader(function)
    return IteratorReader(function)
