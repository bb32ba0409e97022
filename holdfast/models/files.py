"""`model.toml`: a stream graph for models as a file that a person can read and edit.

    name = "bargain"
    flow = "waits"
    frame_s = 1.0

    [[operator]]
    name = "sums"
    protect = { kind = "checkpoint", every_s = 1.0 }

    [[operator.port]]
    reads = ["trades"]
    selectivity = 1.0
    state = { size = 15495.0, alpha = 0.035, beta = 1.98 }

    [[fault]]
    kind = "crash"
    mttf_s = 1800.0
    repair_s = 3.5

Keys are the fields of `models.stream`; what has its default is left out when a model is written. A key
that no field has is an error: a misspelt one would otherwise silently change nothing.

Pure: text in, values out.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from dataclasses import MISSING, fields
from typing import Any

from holdfast.models.stream import Copies, Fault, Operator, Output, Port, Protect, State, StreamModel, refused

__all__ = ["read_model", "write_model"]

# key of the file -> (field, type of its members)
_TABLES: dict[str, tuple[str, type]] = {
    "operator": ("operators", Operator),
    "output": ("outputs", Output),
    "fault": ("faults", Fault),
    "copies": ("copies", Copies),
    "port": ("ports", Port),
}
_SINGLE: dict[str, type] = {"protect": Protect, "state": State}


def read_model(text: str, where: str = "model.toml") -> StreamModel:
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refused("the model cannot be read.", where, str(error), "correct it: it is TOML") from None
    return _made(StreamModel, whole, where)


def write_model(model: StreamModel) -> str:
    """As text; `read_model` of it gives an equal model."""
    lines = [f"{key} = {_value(getattr(model, key))}" for key in ("name", "flow", "frame_s")]
    for note, text in model.notes.items():
        lines.append(f"notes.{_key(note)} = {_value(text)}")
    for key in ("operator", "output", "fault", "copies"):
        attribute, _ = _TABLES[key]
        for each in getattr(model, attribute):
            lines += ["", f"[[{key}]]", *_lines(each)]
            for port in getattr(each, "ports", ()):
                lines += ["", "[[operator.port]]", *_lines(port)]
    return "\n".join(lines) + "\n"


def _made(kind: type, table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        raise refused(f"{table!r} is not a table.", where)
    known = {each.name: each for each in fields(kind)}
    words = {key: attribute for key, (attribute, _) in _TABLES.items() if attribute in known} | {
        name: name for name in known if name not in {attribute for attribute, _ in _TABLES.values()} or name == "copies"
    }
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key not in words:
            close = difflib.get_close_matches(key, words, 1)
            do = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(words)}"
            raise refused(f"there is no key {key!r}.", where, do=do)
        given[words[key]] = _read_value(key, value, known[words[key]], f"{where}, {key}")
    needed = [each.name for each in known.values() if each.default is MISSING and each.default_factory is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise refused(f"{missing[0]!r} is missing.", where, do=f"write {missing[0]} = ...")
    return kind(**given)


def _read_value(key: str, value: Any, field: Any, where: str) -> Any:
    if key in _TABLES and field.name == _TABLES[key][0]:
        if not isinstance(value, list):
            raise refused(f"{key} is a list of tables.", where, do=f"write [[{key}]]")
        _, kind = _TABLES[key]
        return tuple(_made(kind, each, f"{where} {i}") for i, each in enumerate(value, 1))
    if key in _SINGLE:
        return _made(_SINGLE[key], value, where)
    if key == "notes":
        return {str(word): str(text) for word, text in dict(value).items()}
    declared = str(field.type)
    if "tuple" in declared:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise refused(f"{value!r} is not a list of names.", where)
        return tuple(value)
    if "float" in declared:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise refused(f"{value!r} is not a number.", where)
        return float(value)
    kind = {"bool": bool, "int": int, "str": str}[declared]
    if type(value) is not kind:
        raise refused(f"{value!r} is not of type {declared}.", where)
    return value


def _lines(record: Any) -> list[str]:
    found = []
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name == "ports" or value in (None, ()) or (field.default is not MISSING and value == field.default):
            continue
        found.append(f"{field.name} = {_value(value)}")
    return found


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) or math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return "{ " + ", ".join(_lines(value)) + " }"


def _key(word: str) -> str:
    return word if word and all((c.isalnum() and c.isascii()) or c in "_-" for c in word) else _text(word)


def _text(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain) + '"'
