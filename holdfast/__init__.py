"""Holdfast: reliability for data streams, on Spark, from Python.

    import holdfast as hf

The names below are the whole public face. Declaring a process needs neither a JVM nor
pandas; whatever needs more (`hf.read`, `hf.write`, `hf.Run`, ...) is imported when it is first touched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# `hf.frames(10)` is a word, `holdfast.frames` also a package: the package can be called.
from holdfast import frames
from holdfast.declare.process import StreamProcess
from holdfast.errors import Finding, HoldfastError
from holdfast.graph.hosting import backup
from holdfast.graph.model import ARRIVAL
from holdfast.graph.options import feedback, rows
from holdfast.graph.promises import in_order, in_order_across, loses, lossless, within
from holdfast.graph.protections import ecoc, elements, none, snapshot, uncoordinated
from holdfast.graph.restarting import restarts
from holdfast.graph.secrets import secret

if TYPE_CHECKING:
    from holdfast.engine.flow.parameters import Change
    from holdfast.engine.flow.promises import PromiseStatus
    from holdfast.engine.observe.consistency import EdgeStatus
    from holdfast.engine.observe.status import SinkStatus, SourceStatus, Status, UnitStatus
    from holdfast.engine.plain.supervise import supervise
    from holdfast.engine.run.reset import Reset
    from holdfast.engine.run.run import Run
    from holdfast.engine.session.shared import session
    from holdfast.records.search import Found
    from holdfast.records.trace import FrameTrace
    from holdfast.sinks import write
    from holdfast.sinks.once import once
    from holdfast.sources import read
    from holdfast.verify.verifying import Verified

__all__ = [
    "ARRIVAL",
    "Change",
    "EdgeStatus",
    "Finding",
    "Found",
    "FrameTrace",
    "HoldfastError",
    "PromiseStatus",
    "Reset",
    "Run",
    "SinkStatus",
    "SourceStatus",
    "Status",
    "StreamProcess",
    "UnitStatus",
    "Verified",
    "__version__",
    "backup",
    "ecoc",
    "elements",
    "feedback",
    "frames",
    "in_order",
    "in_order_across",
    "loses",
    "lossless",
    "none",
    "once",
    "read",
    "restarts",
    "rows",
    "secret",
    "session",
    "snapshot",
    "supervise",
    "uncoordinated",
    "within",
    "write",
]

__version__ = "0.2.0"

_LAZY = {
    "read": ("holdfast.sources.read", None),
    "write": ("holdfast.sinks.write", None),
    "once": ("holdfast.sinks.once", "once"),
    "supervise": ("holdfast.engine.plain.supervise", "supervise"),
    "session": ("holdfast.engine.session.shared", "session"),
    "Reset": ("holdfast.engine.run.reset", "Reset"),
    "Run": ("holdfast.engine.run.run", "Run"),
    "Status": ("holdfast.engine.observe.status", "Status"),
    "SourceStatus": ("holdfast.engine.observe.status", "SourceStatus"),
    "UnitStatus": ("holdfast.engine.observe.status", "UnitStatus"),
    "SinkStatus": ("holdfast.engine.observe.status", "SinkStatus"),
    "PromiseStatus": ("holdfast.engine.flow.promises", "PromiseStatus"),
    "EdgeStatus": ("holdfast.engine.observe.consistency", "EdgeStatus"),
    "Change": ("holdfast.engine.flow.parameters", "Change"),
    "FrameTrace": ("holdfast.records.trace", "FrameTrace"),
    "Found": ("holdfast.records.search", "Found"),
    "Verified": ("holdfast.verify.verifying", "Verified"),
}


# Words of earlier versions, and what to write today.
_OLD = {
    "checkpoint": (
        "hf.snapshot(every) keeps the same: state, not the frames since then; hf.ecoc(every) is the one that loses nothing",
        "the word promised more than it kept: what came after the last one is LOST with its host",
    ),
}


def __getattr__(name: str) -> Any:
    if name in _OLD:
        from holdfast.graph.words import old_word

        raise old_word(f"hf.{name}", *_OLD[name])
    if name not in _LAZY:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    found = importlib.import_module(module)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
