"""A port's alphabet: columns with types, read from Spark's DDL without a JVM.

A `Schema` is what both ends of an edge must agree on. It is written as Spark
writes it, kept as canonical text, and turned into Arrow where data is handled.

pyarrow is imported only then: it starts threads, and Spark's workers are forked
from a process that has imported this package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from holdfast.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "Schema"]

_SIMPLE = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double",
    "binary", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip
_ALIASES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "bool": "boolean",
    "real": "float",
    "str": "string",
    "text": "string",
    "timestamp_ltz": "timestamp",
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|[^\W\d]\w*|\d+|[<>(),:])")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # canonical: "decimal(12,2)", "array<int>", "struct<a:int,b:string>"


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, declared: object, *, what: str = "schema") -> Schema:
        """From a DDL string, a Spark StructType, an Arrow schema or a Schema."""
        if isinstance(declared, Schema):
            return declared
        if type(declared).__module__.partition(".")[0] == "pyarrow":
            return cls(tuple(Column(field.name, _from_arrow(field.type)) for field in declared))
        if hasattr(declared, "simpleString"):
            # Spark does not quote names there, and `sum(celsius)` is one.
            body = ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in declared.fields)
            return _Parser(body, declared, what).columns()
        if isinstance(declared, str):
            body = declared.strip()
            if body.lower().startswith("struct<") and body.endswith(">"):
                body = body[len("struct<") : -1]
            return _Parser(body, declared, what).columns()
        raise _bad(declared, what, "it is neither text nor a StructType")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def type_of(self, name: str) -> str | None:
        return next((column.type for column in self.columns if column.name == name), None)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @cached_property
    def ddl(self) -> str:
        """As Spark reads it back, and as people read it."""
        return ", ".join(f"{_quoted(column.name)} {column.type}" for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(column.name, _to_arrow(column.type)) for column in self.columns])

    def __str__(self) -> str:
        return self.ddl


def _quoted(name: str) -> str:
    # Letters of ASCII only: Spark's parser takes no others unquoted.
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Recursive descent over `name type, name: type, ...`."""

    def __init__(self, body: str, declared: object, what: str) -> None:
        self._declared, self._what = declared, what
        self._tokens: list[str] = []
        at = 0
        while at < len(body.rstrip()):
            token = _TOKEN.match(body, at)
            if token is None:
                raise _bad(declared, what, f"cannot read {body[at:].strip()[:20]!r}")
            self._tokens.append(token[1])
            at = token.end()
        self._at = 0

    def columns(self) -> Schema:
        found = self._fields(end=None)
        names = [column.name for column in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _bad(self._declared, self._what, f"column {twice!r} stands in it twice")
        if not found:
            raise _bad(self._declared, self._what, "it has no columns")
        return Schema(tuple(found))

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise _bad(self._declared, self._what, "it ends too early")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise _bad(self._declared, self._what, f"expected {token!r}, found {found!r}")

    def _fields(self, end: str | None) -> list[Column]:
        found: list[Column] = []
        while self._peek() is not None and self._peek() != end:
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            found.append(Column(name, self._type()))
            while (word := self._peek()) is not None and word.lower() in ("not", "null", "comment"):
                self._next()
                if word.lower() == "comment":
                    self._next()
            if self._peek() == ",":
                self._next()
                if self._peek() in (None, end):
                    raise _bad(self._declared, self._what, "nothing follows the last comma")
            elif self._peek() != end:
                raise _bad(self._declared, self._what, f"expected ',', found {self._peek()!r}")
        return found

    def _type(self) -> str:
        word = self._next().lower()
        word = _ALIASES.get(word, word)
        if word in _SIMPLE:
            return word
        if word in ("decimal", "dec", "numeric"):
            precision, scale = 10, 0
            if self._peek() == "(":
                self._next()
                precision = int(self._next())
                if self._peek() == ",":
                    self._next()
                    scale = int(self._next())
                self._expect(")")
            return f"decimal({precision},{scale})"
        if word in ("varchar", "char") and self._peek() == "(":
            self._next(), self._next(), self._expect(")")
            return "string"
        if word == "array":
            self._expect("<")
            inner = self._type()
            self._expect(">")
            return f"array<{inner}>"
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return f"map<{key},{value}>"
        if word == "struct":
            self._expect("<")
            inner = self._fields(end=">")
            self._expect(">")
            return "struct<" + ",".join(f"{_quoted(c.name)}:{c.type}" for c in inner) + ">"
        raise _bad(self._declared, self._what, f"{word!r} is not a type Holdfast carries")


@cache
def _simple_arrow() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


def _to_arrow(text: str) -> pa.DataType:
    import pyarrow as pa

    if text in _SIMPLE:
        return _simple_arrow()[text]
    if text.startswith("decimal("):
        precision, scale = text[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    parser = _Parser("x " + text, text, "type")
    parser._next()
    word = parser._next()
    if word == "array":
        parser._expect("<")
        return pa.list_(pa.field("element", _to_arrow(parser._type())))
    if word == "map":
        parser._expect("<")
        key = parser._type()
        parser._expect(",")
        return pa.map_(_to_arrow(key), _to_arrow(parser._type()))
    parser._expect("<")
    return pa.struct([pa.field(c.name, _to_arrow(c.type)) for c in parser._fields(end=">")])


def _from_arrow(kind: pa.DataType) -> str:
    import pyarrow as pa

    for name, arrow in _simple_arrow().items():
        if kind == arrow:
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return "string"
    if pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_uint8(kind):
        return "smallint"
    if pa.types.is_uint16(kind):
        return "int"
    if pa.types.is_uint32(kind):
        return "bigint"
    if pa.types.is_date64(kind):
        return "date"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_from_arrow(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_from_arrow(kind.key_type)},{_from_arrow(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{_quoted(f.name)}:{_from_arrow(f.type)}" for f in kind) + ">"
    raise _bad(str(kind), "type", "Spark has no such type")


def _bad(declared: object, what: str, why: str) -> UsageError:
    return UsageError(
        "HF-C002",
        "NotASchema",
        f"{what} {str(declared)!r} cannot be read.",
        why=why,
        effect="nothing was declared",
        do="write it as Spark's DDL, e.g. 'patient string, ts timestamp, mv double'",
    )
