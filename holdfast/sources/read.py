"""`hf.read`: what a stream process can read. Each function declares and opens nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from holdfast.errors import UsageError
from holdfast.graph.secrets import Secret
from holdfast.sources.connectors.iterators import IteratorReader
from holdfast.sources.connectors.lines import LineReader
from holdfast.sources.connectors.mqtt import MqttReader
from holdfast.sources.files.files import FileReader

__all__ = ["files", "iterator", "lines", "mqtt"]


def files(
    pattern: str | os.PathLike[str],
    *,
    rate: str | float | None = None,
    format: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    quote: str | None = '"',
    null: str = "",
    missing: str = "error",
    growing: bool = False,
) -> FileReader:
    """Parquet, CSV or JSON lines: a file, a folder or a glob, in the order of names.

    `rate`: None is as fast as possible, "as recorded", "10x", or elements a second.
    `format`: by suffix (.parquet, .csv, .tsv, .jsonl, .json, .ndjson; text may be .gz).
    CSV: `header`, `delimiter`, `quote` (None: quotes mean nothing), `null` (text of a null).
    JSON: `missing="null"` lets a declared field be absent from all the first rows.

    `growing=True`: text files may be appended to, and more files may come; the source does not
    end. A line counts when its newline is there, a Parquet or .gz file when it is whole. What was
    used of a file must stay as it was; a file may be renamed in its folder (rotated logs). Frames
    close as those of live sources do (`boundary=`), and rows that cannot be read go by `bad=`.
    """
    _check_signs(delimiter=delimiter, quote=quote)
    _check_missing(missing)
    options = {
        "header": header,
        "delimiter": delimiter,
        "quote": quote,
        "null": null,
        "missing": missing,
    }
    return FileReader(pattern, format=format, rate=rate, options=options, growing=growing)


def iterator(function: Callable[..., Iterable[object]], *, bounded: bool = True) -> IteratorReader:
    """What `function()` yields: dicts, tuples, pandas or Arrow tables; logged before use.

    A function with a parameter is handed the number of elements already logged,
    so that after a restart it can go on where it was; one without must yield the
    same elements from the beginning again, and those already logged are skipped.
    """
    return IteratorReader(function, bounded=bounded)


def mqtt(
    url: str,
    *,
    login: Secret | str | None = None,
    qos: int = 1,
    id: str | None = None,
    client_id: str | None = None,
    ca: str | None = None,
    missing: str = "error",
) -> MqttReader:
    """Messages of a broker: "mqtts://broker:8883/ward4/{patient}/ecg"; JSON objects, or arrays of them.

    A level of the topic in braces becomes the column of that name; + and # match as in MQTT.
    A message is acknowledged after its rows are on disk, so none is lost; one whose
    acknowledgement got lost comes again. `id`: a column that names an element for ever;
    what was logged already is then left out.
    `login`: hf.secret("NAME") whose value is user:password. `ca`: a file with the CA of an
    mqtts broker. `client_id`: under which the broker keeps the session; by default from the
    names of process and source. `missing="null"`: a declared field may be absent.
    """
    _check_missing(missing)
    return MqttReader(url, login=login, qos=qos, id=id, client_id=client_id, ca=ca, missing=missing)


def lines(
    url: str,
    *,
    format: str = "json",
    delimiter: str = ",",
    id: str | None = None,
    missing: str = "error",
    open_to_network: bool = False,
    token: Secret | str | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    connections: int = 256,
) -> LineReader:
    """Lines that scripts send to "tcp://127.0.0.1:9000" or POST to "http://127.0.0.1:9001/path".

    JSON objects, or CSV in the order of the schema, without a header. TCP answers `ok N`
    when the first N lines of a connection are on disk, HTTP with status 200.
    `id`: a column that names an element for ever; what was logged already is left out.
    `token`: hf.secret("NAME"), asked of every sender: TCP in a first line `token VALUE`, HTTP as
    `Authorization: Bearer VALUE`. Requests for other hosts than this address, and from web pages of
    other origins, are refused; `hosts` and `origins` allow more. `connections`: so many at once.
    """
    _check_signs(delimiter=delimiter)
    _check_missing(missing)
    return LineReader(
        url,
        format=format,
        delimiter=delimiter,
        id=id,
        missing=missing,
        open_to_network=open_to_network,
        token=token,
        hosts=hosts,
        origins=origins,
        connections=connections,
    )


def _check_signs(**signs: str | None) -> None:
    for what, sign in signs.items():
        if sign is not None and not (
            isinstance(sign, str) and len(sign) == 1 and sign.isascii() and sign not in "\r\n"
        ):
            raise _not_a_setting(
                f"{what}={sign!r} is not one ASCII sign.", f"take one that stands for it in the text, e.g. {what}=';'"
            )
    if len(set(signs.values())) < len(signs):
        raise _not_a_setting("delimiter= and quote= are the same sign.", "take two")


def _check_missing(missing: str) -> None:
    if missing not in ("error", "null"):
        raise _not_a_setting(
            f"missing={missing!r} is none of 'error' and 'null'.",
            "take missing='null' where a declared field may be absent",
        )


def _not_a_setting(what: str, do: str) -> UsageError:
    return UsageError("HF-C034", "NotASetting", what, effect="nothing was declared", do=do)
