"""Holdfast: reliability for data streams, on Spark, from Python.

    import holdfast as hf

The names below are the whole public face. Declaring a process needs neither a JVM nor
pandas; `hf.read`, `hf.write` and `hf.once` are imported when they are first touched.
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
from holdfast.graph.protections import checkpoint, ecoc, elements, none, uncoordinated
from holdfast.graph.restarting import restarts
from holdfast.graph.secrets import secret

if TYPE_CHECKING:
    from holdfast.engine.plain.supervise import supervise
    from holdfast.sinks import write
    from holdfast.sinks.once import once
    from holdfast.sources import read

__all__ = [
    "ARRIVAL",
    "Finding",
    "HoldfastError",
    "StreamProcess",
    "__version__",
    "backup",
    "checkpoint",
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
    "supervise",
    "uncoordinated",
    "within",
    "write",
]

__version__ = "0.1.0"

_LAZY = {
    "read": ("holdfast.sources.read", None),
    "write": ("holdfast.sinks.write", None),
    "once": ("holdfast.sinks.once", "once"),
    "supervise": ("holdfast.engine.plain.supervise", "supervise"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    found = importlib.import_module(module)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
