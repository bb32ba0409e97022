"""The versions a run was made with, and whether another run may go on with others.

Frames are promised to come out again byte for byte on the same versions. What may change bytes is
another Python, Spark, Arrow, pandas or numpy beyond its patches, another processor, and another
version of ours that is more than a fix: a unit that resumes would seal frames that are not what they
were (HF-F001), or carry on sums that round differently, unnoticed. So that is refused until a person
accepts it (decision 24). A patch is said and taken.

`compare_versions` is pure.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

from holdfast.errors import StateRefused

__all__ = ["compare_versions", "versions_here"]

# name -> how many numbers of a version have to be equal; all of a processor's name.
_DECIDES = {"python": 2, "pyspark": 2, "pyarrow": 1, "pandas": 2, "numpy": 2, "holdfast": 2}


def versions_here() -> dict[str, str]:
    """Of this environment, as the deployment keeps them."""
    import numpy
    import pandas
    import pyarrow
    import pyspark

    import holdfast

    return {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "pandas": pandas.__version__,
        "numpy": numpy.__version__,
        "holdfast": holdfast.__version__,
    }


def compare_versions(old: Mapping[str, str], new: Mapping[str, str], *, accept: bool) -> tuple[str, ...]:
    """What a user should hear of the differences; refuses those that may change bytes, unless they are accepted.

    A folder of a version that recorded less is compared by what it says.
    """
    differing = {name: (old[name], new[name]) for name in new if name in old and old[name] != new[name]}
    grave = [name for name, (was, now) in differing.items() if _kind(name, was) != _kind(name, now)]
    if grave and not accept:
        shown = ", ".join(f"{name} {differing[name][0]} -> {differing[name][1]}" for name in grave)
        raise StateRefused(
            "HF-R066",
            "VersionsChanged",
            f"the state folder was made with other versions: {shown}.",
            why="frames come out the same, byte for byte, on the same versions; with these they may differ in the last digits, "
            "in their order, or not at all",
            effect="nothing was started; state, queues and sinks are untouched",
            do="go back to those versions (requirements.lock has the ones that were tried);\n"
            "or go on with these, from the next frame on: --accept-versions, or start(accept_versions=True)",
        )
    said = "accepted as you decided" if grave else "a patch"
    return tuple(f"{name} {was} -> {now}: {said}" for name, (was, now) in differing.items())


def _kind(name: str, version: str) -> tuple[str, ...]:
    if name not in _DECIDES:
        return (version,)
    return tuple(re.split(r"[.+-]", version)[: _DECIDES[name]])
