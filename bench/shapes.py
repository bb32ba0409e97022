"""What the thesis' tables show, checked on ours, and the goals: each a named line, true or false, or null if not measured."""

from __future__ import annotations

from collections.abc import Iterable

from bench import thesis

__all__ = ["goals", "shapes"]

# "Much less": the thesis' own worst is 16 % (SP2 at CI 500).
MUCH = 0.25
# "Less": a round is not the same to the byte twice.
LESS = 0.95
# "About the same", of bytes and of times: the thesis' figures for one thing differ by as much.
ABOUT = 0.15
ABOUT_TIMES = 1.5


def shapes(found: dict) -> dict[str, bool | None]:
    """Of the phased settings at 200 elements/s; times of the losses."""
    at = _Cells(found, "200", "phased")
    return {
        "ecoc_much_less_than_uncoordinated_sp1": at.all("sp1", "ecoc", "uncoordinated", lambda a, b: a < MUCH * b),
        "ecoc_much_less_than_uncoordinated_sp2": at.all("sp2", "ecoc", "uncoordinated", lambda a, b: a < MUCH * b),
        "extended_less_than_ecoc_at_500_sp2": at.one("sp2", 500, "extended", "ecoc", lambda a, b: a < LESS * b),
        "extended_about_ecoc_at_the_longest_sp2": at.one("sp2", at.longest("sp2"), "extended", "ecoc", _about),
        "extended_equals_ecoc_sp1": at.all("sp1", "extended", "ecoc", _about),
        "no_extension_sp1": at.no_extension("sp1"),
        "extended_less_than_uncoordinated_sp3": at.all("sp3", "extended", "uncoordinated", lambda a, b: a < LESS * b),
        **{f"uncoordinated_rises_at_short_intervals_{name}": at.rises(name) for name in thesis.PROCESSES},
        **{f"ecoc_by_one_over_interval_{name}": at.constant(name) for name in ("sp1", "sp2")},
        "times_alike_but_sp4_extended": _alike(found.get("losses", {})),
    }


def goals(found: dict) -> dict[str, bool | None]:
    made: dict[str, bool | None] = {}
    for rate in ("200", "20000"):
        for name in ("sp1", "sp2"):
            for triggers in ("phased", "aligned"):
                made[f"bytes_per_round_at_most_the_thesis_{name}_{triggers}_{rate}"] = _at_most(
                    found, rate, triggers, name
                )
    fast = _Cells(found, "20000", "phased")
    made["ecoc_at_most_5_percent_of_uncoordinated_sp1_20000"] = fast.all(
        "sp1", "ecoc", "uncoordinated", lambda a, b: a <= 0.05 * b
    )
    less = fast.one("sp1", "frame", "ecoc", "uncoordinated", lambda a, b: a <= 0.05 * b)
    made["ecoc_at_most_5_percent_of_uncoordinated_sp1_20000_each_frame"] = less
    for rate in ("200", "20000"):
        for triggers in ("phased", "aligned"):
            at = _Cells(found, rate, triggers)
            less = at.all("sp4", "extended", "uncoordinated", lambda a, b: a < b)
            made[f"extended_less_than_uncoordinated_sp4_{triggers}_{rate}"] = less
    return made


def _about(a: float, b: float) -> bool:
    return abs(a / b - 1) <= ABOUT


def _at_most(found: dict, rate: str, triggers: str, name: str) -> bool | None:
    """Every interval: ecoc, and extended, against the thesis' coordinated bytes of that interval."""
    at = _Cells(found, rate, triggers)
    own = [(ci, at.value(name, kind, ci)) for kind in ("ecoc", "extended") for ci in at.cis(name)]
    if not own or any(value is None for _, value in own):
        return None
    theirs = {ci: thesis.MEASURED[name]["ecoc"][thesis.CIS.index(ci)] * 1000 * ci / 200 for ci in at.cis(name)}
    return all(value <= theirs[ci] for ci, value in own)


def _alike(lost: dict) -> bool | None:
    """Recovery and catch-up together, by process, interval and kind of loss: the slowest protection against the quickest."""
    if not lost:
        return None
    for name, own in lost.items():
        for ci in {key.partition("-")[2] for key in own}:
            for what in ("single", "multiple"):
                times = [
                    None if each[what]["catchup_s"] is None else each[what]["recovery_s"] + each[what]["catchup_s"]
                    for key, each in own.items()
                    if key.endswith(f"-{ci}") and (name, key.partition("-")[0]) != ("sp4", "extended")
                ]
                if None in times:  # the machine was too busy for anybody to catch up
                    return None
                if max(times) > ABOUT_TIMES * min(times):
                    return False
    return True


class _Cells:
    def __init__(self, found: dict, rate: str, triggers: str) -> None:
        self._found, self._triggers = found["by_rate"].get(rate, {}), triggers

    def cis(self, name: str) -> list[int]:
        """Without the one of a single frame, which has no phases."""
        cells = self._found.get(name, {}).get("cells", {})
        return sorted({int(cell.split("-")[1]) for cell in cells if cell.split("-")[1] != "frame"})

    def longest(self, name: str) -> int:
        return max(self.cis(name), default=0)

    def cell(self, name: str, kind: str, ci: int | str) -> dict | None:
        cells = self._found.get(name, {}).get("cells", {})
        if kind == "uncoordinated":
            return cells.get(f"{kind}-{ci}")
        # One sensor cannot be out of step with another.
        return cells.get(f"{kind}-{ci}-{self._triggers}") or (
            cells.get(f"{kind}-{ci}-aligned") if name == "sp1" else None
        )

    def value(self, name: str, kind: str, ci: int | str) -> float | None:
        cell = self.cell(name, kind, ci)
        return None if cell is None else cell["bytes_per_round"]

    def one(self, name: str, ci: int | str, kind: str, other: str, holds) -> bool | None:
        a, b = self.value(name, kind, ci), self.value(name, other, ci)
        return None if a is None or b is None else bool(holds(a, b))

    def all(self, name: str, kind: str, other: str, holds) -> bool | None:
        return _whole(self.one(name, ci, kind, other, holds) for ci in self.cis(name))

    def no_extension(self, name: str) -> bool | None:
        return _whole(self.cell(name, "extended", ci)["extended_share"] == 0 for ci in self.cis(name))

    def rises(self, name: str) -> bool | None:
        """More bytes a second at the shortest interval than at the longest."""
        cis = self.cis(name)
        if len(cis) < 2:
            return None
        shortest, longest = (self.value(name, "uncoordinated", ci) / ci for ci in (cis[0], cis[-1]))
        return longest < LESS * shortest

    def constant(self, name: str) -> bool | None:
        """Bytes a round do not depend on the interval."""
        own = [self.value(name, "ecoc", ci) for ci in self.cis(name)]
        return None if len(own) < 2 else max(own) <= (1 + ABOUT) * min(own)


def _whole(lines: Iterable[bool | None]) -> bool | None:
    known = list(lines)
    return None if not known or None in known else all(known)
