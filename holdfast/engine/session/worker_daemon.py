"""Spark's Python daemon, with a garbage collector that does not look at imports.

`pyspark.daemon` runs `gc.collect()` after every task. With pandas and pyarrow
loaded that is 33 ms of one core, more than a small frame costs. After the third
collection of a worker its imports are done; `gc.freeze()` then moves all that
lives to where the collector does not look, and later collections cost what the
frame itself made. Objects frozen by mistake are still freed by their reference
counts; only a cycle alive at that moment stays until the worker ends.

Named by `spark.python.daemon.module`; runs in Spark's worker processes, where
it must not import anything heavy: workers are forked from it.
"""

from __future__ import annotations

import gc

from pyspark import daemon

__all__ = ["freeze_after_warm_up"]

# The first task imports pyarrow, the second and third what user code imports lazily.
COLLECTIONS_BEFORE_FREEZE = 3


def freeze_after_warm_up() -> None:
    """Replace gc.collect by one that freezes once, in each forked worker by itself."""
    collect = gc.collect
    seen = 0

    def collect_then_freeze(*generation: int) -> int:
        nonlocal seen
        found = collect(*generation)
        seen += 1
        if seen == COLLECTIONS_BEFORE_FREEZE:
            gc.freeze()
        return found

    gc.collect = collect_then_freeze  # type: ignore[assignment]


if __name__ == "__main__":
    freeze_after_warm_up()
    daemon.manager()
