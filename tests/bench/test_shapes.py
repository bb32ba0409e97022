"""The lines of bench-ecoc, on the thesis' own figures: what it says of them must hold, and what it does not reach must not."""

from __future__ import annotations

import pytest

from bench import thesis
from bench.shapes import goals, shapes


def figures(rate: str = "200") -> dict:
    """The thesis' tables, as the study would have measured them."""
    found: dict = {"by_rate": {rate: {}}, "losses": {}}
    for name, by_kind in thesis.MEASURED.items():
        cells, triggers = {}, ("aligned",) if name == "sp1" else ("phased", "aligned")
        for kind, kb_per_s in by_kind.items():
            for ci, value in zip(thesis.CIS, kb_per_s, strict=True):
                cell = {"bytes_per_round": value * 1000 * ci / 200, "extended_share": 0.0}
                names = [f"{kind}-{ci}"] if kind == "uncoordinated" else [f"{kind}-{ci}-{how}" for how in triggers]
                cells |= dict.fromkeys(names, cell)
        found["by_rate"][rate][name] = {"cells": cells}
    return found


def test_the_thesis_figures_have_the_shapes_it_tells_of():
    lines = shapes(figures())

    assert {line for line, holds in lines.items() if holds is None} == {"times_alike_but_sp4_extended"}
    assert {line for line, holds in lines.items() if holds is False} == set()


def test_the_thesis_figures_miss_the_goal_that_it_misses():
    """At CI 1000 its extended protocol writes more than the uncoordinated one."""
    lines = goals(figures())

    assert lines["extended_less_than_uncoordinated_sp4_phased_200"] is False
    assert lines["bytes_per_round_at_most_the_thesis_sp2_phased_200"] is True
    assert lines["ecoc_at_most_5_percent_of_uncoordinated_sp1_20000"] is None


@pytest.mark.parametrize(
    ("name", "cell", "times", "line"),
    [
        ("sp1", "ecoc-3000-aligned", 60, "ecoc_much_less_than_uncoordinated_sp1"),
        ("sp2", "extended-500-phased", 11.87 / 8.95, "extended_less_than_ecoc_at_500_sp2"),
        ("sp2", "extended-3000-phased", 1.2, "extended_about_ecoc_at_the_longest_sp2"),
        ("sp3", "extended-2000-phased", 1.6, "extended_less_than_uncoordinated_sp3"),
        ("sp4", "uncoordinated-500", 0.5, "uncoordinated_rises_at_short_intervals_sp4"),
        ("sp2", "ecoc-3000-phased", 1.3, "ecoc_by_one_over_interval_sp2"),
    ],
)
def test_a_figure_that_breaks_a_shape_is_told(name, cell, times, line):
    found = figures()
    cells = found["by_rate"]["200"][name]["cells"]
    cells[cell] = cells[cell] | {"bytes_per_round": cells[cell]["bytes_per_round"] * times}

    assert shapes(found)[line] is False


def test_one_protection_that_needs_twice_as_long_is_told_but_extended_on_sp4():
    quick, slow = ({"recovery_s": s, "catchup_s": 0.0} for s in (1.0, 2.0))
    alike = {"single": quick, "multiple": quick}
    slower = {"single": quick, "multiple": slow}

    def line(lost: dict) -> bool | None:
        return shapes(figures() | {"losses": lost})["times_alike_but_sp4_extended"]

    assert line({"sp1": {"ecoc-500": alike, "extended-500": alike}}) is True
    assert line({"sp1": {"ecoc-500": alike, "extended-500": slower}}) is False
    assert line({"sp4": {"uncoordinated-500": alike, "extended-500": slower}}) is True
