"""What belongs to each kind of operator, read from what the user wrote.

`declare.process.StreamProcess` calls these while declaring; the dictionaries they return are
`model.Operator.options` and are documented there. A value that cannot be read at all
is refused here; what can be read but does not fit is for `rules`.

Pure: text in, values out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import UsageError
from holdfast.graph.declared import as_names, did_you_mean, one_of, refuse
from holdfast.graph.durations import duration_ms
from holdfast.graph.model import Arrival
from holdfast.graph.schemas import Schema

__all__ = [
    "AGGREGATES",
    "Feedback",
    "Rows",
    "Signature",
    "aggregate_options",
    "emitted",
    "feedback",
    "join_options",
    "rows",
    "signature_of",
    "split_options",
]

AGGREGATES = (
    "avg",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "min",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
)
_ALIASES = {"mean": "avg", "stddev": "stddev_samp", "std": "stddev_samp", "variance": "var_samp"}
_WINDOW_EDGES = ("window_start", "window_end")
_OWN_OPERATOR = "write it as an operator of your own"
# Spark has them, and the nearest word of ours is not what was meant.
_ELSEWHERE = ("max_by", "min_by", "count_if", "try_sum", "try_avg", "count_min_sketch", "approx_count_distinct")


@dataclass(frozen=True, slots=True)
class Feedback:
    """Reads `stream` of `frames` frames ago; empty in the first ones."""

    stream: str
    schema: Schema | None = None
    frames: int = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """A window of so many rows per key."""

    count: int


def feedback(stream: str, *, schema: object = None, frames: int = 1) -> Feedback:
    """An edge that closes a cycle. The schema must be declared: inference would be circular."""
    if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
        raise refuse(
            "HF-C020",
            "NotACount",
            f"feedback('{stream}', frames={frames!r}) cannot be.",
            why="frame n cannot read what frame n itself is about to produce",
            do="take frames=1, or more",
        )
    return Feedback(stream, None if schema is None else Schema.of(schema, what="feedback schema"), frames)


def rows(count: int) -> Rows:
    """A window of so many rows per key, as in `window=hf.rows(10)`."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise refuse("HF-C020", "NotACount", f"rows({count!r}) cannot be.", do="take a whole number of at least 1")
    return Rows(count)


@dataclass(frozen=True, slots=True)
class Signature:
    """Positional parameters are ports, keyword-only ones run-time parameters."""

    ports: tuple[str, ...]
    params: tuple[str, ...]
    with_default: frozenset[str]


def signature_of(function: Callable[..., Any], *, state: bool = False) -> Signature:
    """Read ports and parameters off a function. `state`: the first one is the keyed state."""
    if not callable(function):
        raise refuse("HF-C004", "BadSignature", f"{function!r} is not a function.", do="decorate a def")
    name = getattr(function, "__name__", "?")
    ports, params, defaults = [], [], set()
    for each in inspect.signature(function).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            star = "*" if each.kind is each.VAR_POSITIONAL else "**"
            raise refuse(
                "HF-C004",
                "BadSignature",
                f"'{name}' takes {star}{each.name}.",
                why="positional parameters are input streams by name, keyword-only ones run-time parameters",
                do="write each port and each parameter out",
            )
        if each.kind is each.KEYWORD_ONLY:
            params.append(each.name)
        else:
            ports.append(each.name)
        if each.default is not each.empty:
            defaults.add(each.name)
    if state and (not ports or ports[0] != "state"):
        raise refuse(
            "HF-C004",
            "BadSignature",
            f"keyed operator '{name}' does not take the state first.",
            why=f"it takes ({', '.join(ports)})",
            do=f"def {name}(state, {', '.join(ports) or 'rows'}): ...",
        )
    return Signature(tuple(ports[1:] if state else ports), tuple(params), frozenset(defaults))


def emitted(name: str, declared: object, *, what: str) -> tuple[tuple[str, ...], dict[str, Schema | None]]:
    """(streams, schema of each) from None, one schema, a list of ports or {port: schema}."""
    if declared is None:
        return (name,), {}
    if isinstance(declared, Mapping) and declared:
        schemas = {
            f"{name}.{port}": None if ddl is None else Schema.of(ddl, what=f"{what} of port '{port}'")
            for port, ddl in declared.items()
        }
        return tuple(schemas), schemas
    if isinstance(declared, list | tuple) and declared:
        ports = tuple(f"{name}.{port}" for port in as_names(declared, what=what))
        return ports, dict.fromkeys(ports)
    return (name,), {name: Schema.of(declared, what=what)}


def aggregate_options(
    *,
    by: object,
    emits: object,
    window: object,
    every: object,
    session: object,
    time: str | None,
    process_time: str | Arrival | None,
    lateness: object,
) -> dict[str, Any]:
    if not isinstance(emits, Mapping) or not emits:
        raise refuse(
            "HF-C011",
            "NotAnAggregate",
            f"emits={emits!r} names no aggregates.",
            do="write emits={'mean': 'avg(celsius)'}",
        )
    if session is not None and (window is not None or every is not None):
        raise refuse(
            "HF-C012",
            "WindowAmbiguous",
            "a session and a window are both declared.",
            do="keep session= (closes after a gap) or window= (closes by its length)",
        )
    if every is not None and window is None:
        raise refuse("HF-C012", "WindowAmbiguous", "every= without window=.", do="add window=, e.g. window=every")
    if every is not None and isinstance(window, Rows) != isinstance(every, Rows):
        raise refuse(
            "HF-C012",
            "WindowAmbiguous",
            f"window={window!r} and every={every!r} count differently.",
            do="give both as durations, or both as hf.rows(n)",
        )
    counted = isinstance(window, Rows)
    window_ms = None if window is None or counted else duration_ms(window, what="window")
    every_ms = None if every is None or counted else duration_ms(every, what="every")
    return {
        "by": as_names(by, what="by") if by else (),
        "emits": {str(column): _aggregate(text) for column, text in emits.items()},
        "window_ms": window_ms,
        "every_ms": every_ms if every_ms is not None else window_ms,
        "session_ms": None if session is None else duration_ms(session, what="session"),
        "window_rows": window.count if counted else None,
        "every_rows": (every or window).count if counted else None,
        "time": time if time is not None else _column(process_time),
        "lateness_ms": 0 if lateness is None else duration_ms(lateness, what="lateness"),
    }


def join_options(
    *, on: object, within: object, how: object, emits: object, time: str | None, process_time: object
) -> dict[str, Any]:
    return {
        "on": as_names(on, what="on"),
        "within_ms": duration_ms(within, what="within"),
        "how": one_of(how, ("inner", "left"), what="how"),
        "time": time if time is not None else _column(process_time),
        "emits": None if emits is None else as_names(emits, what="emits"),
    }


def split_options(into: object) -> dict[str, str]:
    if isinstance(into, Mapping) and into and all(isinstance(text, str) for text in into.values()):
        return {str(port): text for port, text in into.items()}
    raise refuse(
        "HF-C013",
        "NotASplit",
        f"into={into!r} names no ports.",
        do="write into={'hot': 'celsius > 80', 'cold': 'celsius <= 80'}",
    )


def _column(time: object) -> str | None:
    return time if isinstance(time, str) else None


def _aggregate(text: object) -> tuple[str, str]:
    """'avg(celsius)' -> ('avg', 'celsius'); 'window_end' -> ('window_end', '')."""
    if isinstance(text, str) and text.strip() in _WINDOW_EDGES:
        return text.strip(), ""
    found = re.match(r"\s*(\w+)\s*\(", text) if isinstance(text, str) else None
    inside, rest = _to_bracket(text[found.end() :]) if found else (None, "")
    if found is None or inside is None:
        raise _not_an_aggregate(text, "an aggregate is written function(expression)", "e.g. 'avg(celsius)'")
    word, inside = found[1].lower(), inside.strip()
    word = _ALIASES.get(word, word)
    if word == "count" and re.match(r"distinct\b", inside, flags=re.IGNORECASE):
        word, inside = "count_distinct", inside[len("distinct") :].strip()
    if word not in AGGREGATES:
        raise _not_an_aggregate(
            text,
            "there is: " + ", ".join((*AGGREGATES, *_WINDOW_EDGES)),
            _OWN_OPERATOR
            if word in _ELSEWHERE
            else did_you_mean(word, (*AGGREGATES, *_WINDOW_EDGES), otherwise=_OWN_OPERATOR),
        )
    if not inside or (inside == "*" and word != "count"):
        raise _not_an_aggregate(text, f"{word} of nothing", f"name a column: '{word}(celsius)'")
    _refuse_more(text, word, inside, rest.strip())
    return word, inside


def _refuse_more(text: str, word: str, inside: str, rest: str) -> None:
    """One function of one expression: SQL allows more, and means something by it."""
    call = "count(distinct {})" if word == "count_distinct" else word + "({})"
    filtered = re.match(r"filter\s*\(\s*where\b", rest, flags=re.IGNORECASE)
    condition, after = _to_bracket(rest[filtered.end() :]) if filtered else (None, "")
    if condition is not None and not after.strip():
        before = f"take only such rows: p.filter(NAME, of=..., where={condition.strip()!r}) before the aggregate"
        case = call.format(f"case when {condition.strip()} then {'1' if inside == '*' else inside} end")
        do = before if word in ("first", "last") else f"write {case!r}; or {before}"
        raise _not_an_aggregate(text, "an aggregate of Holdfast has no filter (where ...) of its own", do)
    if rest:
        why = f"{rest!r} stands behind {call.format(inside)!r}: a column is one function of one expression"
        raise _not_an_aggregate(
            text, why, f"emit {call.format(inside)!r}, and compute the rest with map() after the aggregate"
        )
    if re.match(r"(distinct|all)\b", inside, flags=re.IGNORECASE) and not inside.lower().startswith(
        ("distinct(", "all(")
    ):
        plain = inside.split(None, 1)[-1]
        if word in ("min", "max") or inside.lower().startswith("all"):
            raise _not_an_aggregate(text, f"{word} takes one expression", f"write '{word}({plain})', which is the same")
        raise _not_an_aggregate(
            text, "of distinct values there is only the count", "write it as a keyed operator of your own"
        )
    if len(parts := _parts(inside)) > 1:
        more = (
            f"; for how many combinations there are: 'count(distinct to_json(struct({inside})))'"
            if "count" in word
            else ""
        )
        do = f"write {call.format(parts[0].strip())!r}{more}"
        raise _not_an_aggregate(text, f"{word} takes one expression, and there are {len(parts)}", do)


def _to_bracket(text: str) -> tuple[str | None, str]:
    """What stands before the bracket that closes, and behind it; None if none does."""
    for at, depth in _depths(text):
        if depth < 0:
            return text[:at], text[at + 1 :]
    return None, ""


def _parts(text: str) -> list[str]:
    """What the commas between brackets divide."""
    cuts = [at for at, depth in _depths(text) if depth == 0 and text[at] == ","]
    return [text[begin:end] for begin, end in zip([0, *(at + 1 for at in cuts)], [*cuts, len(text)], strict=True)]


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Each sign outside quotes, with the brackets that are open after it."""
    depth, quote, at = 0, "", 0
    while at < len(text):
        sign = text[at]
        if quote:
            if sign == "\\" and quote != "`":
                at += 1
            elif sign == quote:
                quote = ""
        elif sign in "'\"`":
            quote = sign
        else:
            depth += (sign == "(") - (sign == ")")
            yield at, depth
        at += 1


def _not_an_aggregate(text: object, why: str, do: str) -> UsageError:
    return refuse("HF-C011", "NotAnAggregate", f"{text!r} is not an aggregate.", why=why, do=do)
