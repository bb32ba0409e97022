"""bench-predict writes what it says it writes."""

from __future__ import annotations

from bench.predict import draw_figures, draw_table, planner_seconds, table_5_4


def test_pictures_and_table_are_written(tmp_path):
    rows = table_5_4()
    draw_table(tmp_path, rows)
    shapes = draw_figures(tmp_path, 20)

    assert len(rows) == 7
    assert (tmp_path / "table_5_4.md").read_text().count("\n") == 9
    assert {path.name for path in tmp_path.glob("*.png")} == {"figures.png", "table_5_4.png"}
    assert [len(each) for each in shapes.values()] == [4, 4]


def test_the_planner_is_timed():
    assert planner_seconds(units=3, options=4) > 0
