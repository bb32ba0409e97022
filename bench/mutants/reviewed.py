"""Two lists that people keep: mutants that change no behaviour, each with its reason, and those that `make test` tries.

An entry names a mutant by file, function, line and what the line becomes (`making.Mutant.name`). One that names nothing
any more is an error: the code it argues about has changed, so its argument has to be read again.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from bench.mutants.making import Mutant

__all__ = ["EQUIVALENT", "FIXED", "Name", "equivalents", "fixed", "strangers"]

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
FIXED = Path(__file__).with_name("fixed.toml")

Name = tuple[str, str, str, str]


def _names(path: Path, needs: tuple[str, ...]) -> dict[Name, dict[str, str]]:
    found: dict[Name, dict[str, str]] = {}
    for entry in tomllib.loads(path.read_text()).get("mutant", []):
        wrong = [word for word in ("file", "within", "line", "becomes", *needs) if not entry.get(word)]
        if wrong:
            raise ValueError(f"{path.name}: {entry} does not say {', '.join(wrong)}")
        name = (f"holdfast/protocols/{entry['file']}", entry["within"], entry["line"], entry["becomes"])
        if name in found:
            raise ValueError(f"{path.name}: {entry} is there twice")
        found[name] = entry
    return found


def equivalents() -> dict[Name, str]:
    """Mutants that were read and found to change nothing, and why."""
    return {name: entry["why"] for name, entry in _names(EQUIVALENT, ("why",)).items()}


def fixed() -> list[Name]:
    return list(_names(FIXED, ()))


def strangers(names: Iterable[Name], mutants: Iterable[Mutant]) -> list[Name]:
    """Entries that no mutant answers to."""
    known = {mutant.name for mutant in mutants}
    return [name for name in names if name not in known]
