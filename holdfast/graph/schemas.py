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
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.quoting import quoted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "Schema", "carried_as", "folded", "named", "written"]

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
# Types of Spark's that no frame carries, and what a column of one is cast to.
_INSTEAD = {
    "variant": "string",
    "time": "string",
    "void": "string",
    "null": "string",
    "interval": "string",
    "geography": "binary",
    "geometry": "binary",
}
_UNITS = ("year", "month", "day", "hour", "minute", "second", "to")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[^\W\d]\w*|\d+|[<>(),:])")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # canonical: "decimal(12,2)", "array<int>", "struct<a:int,b:string>"


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, declared: Any, *, what: str = "schema") -> Schema:
        """From a DDL string, a Spark StructType, an Arrow schema or a Schema."""
        if isinstance(declared, Schema):
            return declared
        if type(declared).__module__.partition(".")[0] == "pyarrow":
            return cls(tuple(Column(field.name, _from_arrow(field.type)) for field in declared))
        if hasattr(declared, "simpleString"):
            body = ", ".join(f"{quoted(field.name)} {written(field.dataType)}" for field in declared.fields)
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

    def __contains__(self, name: Any) -> bool:
        return name in self.names

    @cached_property
    def ddl(self) -> str:
        """As Spark reads it back, and as people read it."""
        return ", ".join(f"{named(column.name)} {column.type}" for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(column.name, _to_arrow(column.type)) for column in self.columns])

    def __str__(self) -> str:
        return self.ddl


def folded(name: str) -> str:
    """Equal for names that Spark, and most databases, take for one: they do not tell `Zone` from `zone`."""
    return "".join(each.upper().lower() if len(each.upper()) == 1 else each for each in name)


def carried_as(kind: str) -> str:
    """The type a column of this one can be cast to so that frames carry it; the same if they do."""
    return _Parser(f"x {kind}", kind, "type")._fields(end=None)[0].type


def named(name: str) -> str:
    """A name as SQL reads it back, in quotes where it needs them."""
    # Letters of ASCII only: Spark's parser takes no others unquoted.
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)


def written(kind: Any) -> str:
    """A type of Spark's as DDL. Its own `simpleString` does not quote names, and `sum(celsius)` is one."""
    if hasattr(kind, "fields"):
        return "struct<" + ",".join(f"{quoted(each.name)}:{written(each.dataType)}" for each in kind.fields) + ">"
    if hasattr(kind, "elementType"):
        return f"array<{written(kind.elementType)}>"
    if hasattr(kind, "keyType"):
        return f"map<{written(kind.keyType)},{written(kind.valueType)}>"
    return str(kind.simpleString())


class _Parser:
    """Recursive descent over `name type, name: type, ...`."""

    def __init__(self, body: str, declared: Any, what: str) -> None:
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
        self._column = ""  # the outermost one that is being read
        self._lacking: dict[str, str] = {}  # column -> type of Spark's in it that no frame carries

    def columns(self) -> Schema:
        found = self._fields(end=None)
        if not found:
            raise _bad(self._declared, self._what, "it has no columns")
        for column in found:
            if column.name in self._lacking:
                raise _not_carried(column, self._lacking[column.name], self._what)
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
        seen: dict[str, str] = {}
        while self._peek() is not None and self._peek() != end:
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if end is None:
                self._column = name
            self._check_name(name, seen)
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

    def _check_name(self, name: str, before: dict[str, str]) -> None:
        if not name or "\0" in name or any("\ud800" <= sign <= "\udfff" for sign in name):
            why = "a name has at least one sign, and neither a NUL nor half of a sign among them"
            raise _bad_name(self._what, f"names a column {name!r}", why, "give it another name: 'column'")
        if (other := before.get(folded(name))) is not None:
            same = "stands in it twice" if other == name else f"stands in it beside {other!r}"
            why = (
                ""
                if other == name
                else "Spark and most databases do not tell upper from lower case in names of columns"
            )
            raise _bad_name(
                self._what, f"cannot be taken: column {name!r} {same}", why, f"give one another name: '{name}_2'"
            )
        before[folded(name)] = name

    def _instead(self, word: str) -> str:
        """Reads the rest of a type that is not carried, and goes on with the one it can be cast to."""
        units = []
        while (self._peek() or "").lower() in _UNITS:
            units.append(self._next().lower())
        if self._peek() == "(":
            while self._next() != ")":
                pass
        self._lacking.setdefault(self._column, " ".join([word, *units]))
        if units:  # months, or seconds with their fractions
            return "int" if units[0] in ("year", "month") else "decimal(18,6)"
        return _INSTEAD[word]

    def _type(self) -> str:
        word = self._next().lower()
        word = _ALIASES.get(word, word)
        if word == "string" and (self._peek() or "").lower() == "collate":
            self._next()
            self._lacking.setdefault(self._column, f"string collate {self._next()}")
            return word
        if word in _SIMPLE:
            return word
        if word in _INSTEAD:
            return self._instead(word)
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
            self._next()
            self._next()
            self._expect(")")
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
            fields = self._fields(end=">")
            self._expect(">")
            return "struct<" + ",".join(f"{named(c.name)}:{c.type}" for c in fields) + ">"
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
        return "struct<" + ",".join(f"{named(f.name)}:{_from_arrow(f.type)}" for f in kind) + ">"
    raise _bad(str(kind), "type", "Spark has no such type")


def _bad(declared: Any, what: str, why: str) -> UsageError:
    return UsageError(
        "HF-C002",
        "NotASchema",
        f"{what} {str(declared)!r} cannot be read.",
        why=why,
        effect="nothing was declared",
        do="write it as Spark's DDL, e.g. 'patient string, ts timestamp, mv double'",
    )


def _not_carried(column: Column, kind: str, what: str) -> UsageError:
    name = named(column.name)
    if what != "schema":  # declared by the user, who has to begin with another
        do = f"declare '{name} {column.type}', and make it another type in an operator"
    elif kind.startswith(("geography", "geometry")):
        do = (
            f"emit st_asbinary({name})"
            if column.type == "binary"
            else f"emit it without {kind}: st_asbinary makes binary of one"
        )
    else:
        do = f"cast it: cast({name} as {column.type})"
    return UsageError(
        "HF-C050",
        "TypeNotCarried",
        f"column {column.name!r} is of a type that frames do not carry: {kind}.",
        why="a frame must read back the same everywhere; Arrow, Parquet and the databases have no such type or each their own",
        effect="nothing was declared",
        do=do,
    )


def _bad_name(what: str, which: str, why: str, do: str) -> UsageError:
    return UsageError("HF-C051", "NotAColumnName", f"{what} {which}.", why=why, effect="nothing was declared", do=do)
