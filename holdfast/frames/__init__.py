"""Segment: streams as numbered frames with an identity, a boundary and a checksum.

The package is also the function `hf.frames(10)`: `holdfast` can have only one attribute of that name, so this module
is callable. `import holdfast.frames.clock` and `hf.frames(10)` both work.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.graph.protections import Interval

__all__: list[str] = []


class _Frames(ModuleType):
    def __call__(self, n: int) -> Interval:
        from holdfast.graph.protections import frames

        return frames(n)

    @property
    def __signature__(self) -> inspect.Signature:
        from holdfast.graph.protections import frames

        return inspect.signature(frames)


sys.modules[__name__].__class__ = _Frames
