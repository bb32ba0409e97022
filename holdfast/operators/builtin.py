"""What a built-in operator is to the machine that runs it: a keyed function.

A built-in (aggregate, join) is no engine of its own. It is a pure function over
the state of the touched keys, handed to the same machine that runs a user's
keyed operator, so that it inherits shards, restarts and replay from there. What
the machine must know beforehand is written down in `KeyedFunction`:

- `prepare[i]` turns the DataFrame of port i into the rows the function takes
  (schema `rows[i]`), in Spark and before Python: it computes the columns of the
  state key and, where it can, one partial result per key, so that a million
  rows arrive as a thousand. It names no session and reads no clock.
- the machine hands in the state of every key that a row names, and of every key
  whose `wake` is at or before the boundary, even if the frame has no rows; a
  key handed in and not returned is forgotten.
- `since` is the boundary of the frame before: what ended at or before it has
  been emitted, so a row for it is late. It is counted in
  `out.attrs["late_rows"]`, never dropped in silence.

The end boundary must be handed in once nothing can follow: behind an operator
that answers a frame late, in the closing frame after it, not before.

Pure: no session, clock, file or randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import Finding, ProcessRefused
from holdfast.graph.schemas import Schema, folded, named

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

__all__ = ["ALL", "FRAME", "FrameFunction", "KeyedFunction", "carried", "check_keys", "refuse"]

# The state key of an aggregate over everything: a key needs a column.
ALL = "_all"
# The frame a row belongs to, where a task is handed several frames at once. `prepare`
# carries it through and never mixes rows of two frames.
FRAME = "_n"


def carried(df: DataFrame) -> tuple[str, ...]:
    """The frame column, if the DataFrame has one."""
    return (FRAME,) if FRAME in df.columns else ()


class FrameFunction(Protocol):
    """State after frame n and its output, from the state before and its rows."""

    # `(state, *rows, *, boundary, frame, since=None)`, with as many rows as it has ports.
    def __call__(self, *args: Any, **kwargs: Any) -> tuple[pd.DataFrame, pd.DataFrame]: ...


@dataclass(frozen=True, slots=True)
class KeyedFunction:
    """A built-in, ready for the keyed machine. Pickles into Spark's workers.

    DataFrames should come in with Arrow's types (`types_mapper=pd.ArrowDtype`), and
    go out so: they are exact and cost least. Other pandas types are read too, but
    there `first` and `last` cannot tell a null from a NaN.
    """

    name: str  # "running aggregate", as `show` prints it
    keys: Schema  # of the state: grouping keys, and the window where it is one
    shard_by: tuple[str, ...]  # columns of `keys` that decide the shard
    state: Schema  # columns besides the keys, `wake timestamp` among them where used
    emits: Schema
    rows: tuple[Schema, ...]  # per port, what `prepare` yields; holds all of `keys`
    prepare: tuple[Callable[[DataFrame], DataFrame], ...]  # per port
    function: FrameFunction
    float_sensitive: bool  # the result depends on the order in which rows are added up


def refuse(code: str, name: str, what: str, *, why: str = "", do: str = "") -> ProcessRefused:
    """A declaration that cannot become a built-in. Raised before anything runs."""
    return ProcessRefused([Finding(code, name, what, why=why, effect="nothing was started, nothing was read", do=do)])


def check_keys(keys: Schema, taken: Iterable[str]) -> None:
    """Refuses keys that cannot be compared, or are called like a column of our own."""
    taken = set(map(folded, taken))
    for column in keys.columns:
        if "<" in column.type:
            raise refuse(
                "HF-O022",
                "AggregateTypeRefused",
                f"{column.name!r} cannot be a key: {column.type} has no equality to group by.",
                do="compute a key of a plain type with map() before, e.g. to_json(...)",
            )
        if folded(column.name) in taken:
            raise refuse(
                "HF-O027",
                "NameTaken",
                f"a key called {column.name!r} meets a column of the operator's state.",
                do=f"rename it with map() before: '{named(column.name)} as {named('key_' + column.name.strip('_'))}'",
            )
