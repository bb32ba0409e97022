"""Pace says when, never what."""

import pytest

from holdfast.sources.pace import Pace


@pytest.mark.parametrize(
    ("rate", "due_s"),
    [(None, 0.0), ("fast", 0.0), ("as recorded", 3.0), ("10x", 0.3), ("0.5 x", 6.0), (50, 2.0)],
)
def test_a_frame_is_due_when_its_stretch_has_passed(rate, due_s):
    assert Pace.of(rate).due_s(frames=3, frame_us=1_000_000, rows=100) == pytest.approx(due_s)


def test_a_pace_reads_as_it_was_written():
    shown = [str(Pace.of(rate)) for rate in (None, "as recorded", "10x", 50)]
    assert shown == ["as fast as possible", "as recorded", "10x", "50 elements a second"]
