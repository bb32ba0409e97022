"""Writes frames until it is killed: `python -m tests.sinks.killed_child KIND FOLDER POINT FRAME KEYED`.

Dies by SIGKILL of its own hand at a named point of the write of FRAME, or never
(POINT "none"), so that the parent may choose the moment.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from holdfast.graph.secrets import secret
from holdfast.sinks import duckdb, parquet, postgres, sqlite, write
from holdfast.sinks.ledger import Ledger
from holdfast.sinks.writer import SinkContext

from .conftest import SCHEMA, make_frame

FRAMES = 12


def frames():
    return [
        make_frame(n, [(i % 50, n * 1000 + i, n + i / 8) for i in range(0 if n == 5 else 400)], checksum=f"c{n}")
        for n in range(1, FRAMES + 1)
    ]


def open_sink(kind: str, folder: Path, epoch: int, keyed: bool):
    context = SinkContext("kiln", "average", SCHEMA, "ts", folder, epoch)
    keys = ["zone"] if keyed else None
    if kind == "parquet":
        return write.parquet("out").open(context)
    if kind == "postgres":  # the server's address is in the environment, the folder's name is the schema
        return write.postgres(secret("HOLDFAST_TEST_PG"), "average", keys, schema=folder.name).open(context)
    return getattr(write, kind)("out.db", "average", keys).open(context)


def dies_after(owner: object, name: str, when) -> None:
    real = getattr(owner, name)

    def wrapped(*args, **kwargs):
        result = real(*args, **kwargs)
        if when(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def dies_before(owner: object, name: str, when) -> None:
    real = getattr(owner, name)

    def wrapped(*args, **kwargs):
        if when(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(owner, name, wrapped)


def main() -> None:
    kind, folder, point, frame, keyed = sys.argv[1:]
    target, current = int(frame), 0
    sink = open_sink(kind, Path(folder), 1, keyed == "keyed")
    owner = {
        "sqlite": sqlite.SqliteSink,
        "duckdb": duckdb.DuckdbSink,
        "parquet": parquet.ParquetSink,
        "postgres": postgres.PostgresSink,
    }[kind]

    def at_target(*_):
        return current == target

    match point:
        case "rows inserted":
            dies_after(owner, "insert", at_target)
        case "ledger entered":
            dies_after(Ledger, "enter", at_target)
        case "committed":
            dies_after(owner, "run", lambda _, sql, *__: at_target() and sql == "commit")
        case "before rename":
            dies_before(os, "replace", at_target)
        case "renamed":
            dies_after(os, "replace", at_target)
        case "before ledger line":
            dies_before(owner, "_enter", at_target)
        case "after ledger line":
            dies_after(owner, "_enter", at_target)
    for record, table in frames():
        current = record.n
        sink.write([(record, table)])
        print(record.n, flush=True)


if __name__ == "__main__":
    main()
