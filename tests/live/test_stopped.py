"""One run at a time, stopped when asked, and the next goes on."""

from __future__ import annotations

import signal

from tests.live.conftest import assert_same


def test_signals_stop_after_the_frame_and_a_second_run_is_refused(bench, undisturbed):
    """SIGTERM is what a supervisor sends, SIGINT is Ctrl-C: neither is an accident, and both are exit 0."""
    plant = bench()
    pace = ("--rate", "4x")
    for ask in (signal.SIGTERM, signal.SIGINT):
        run = plant.start(*pace)
        wanted = plant.last_written() + 3
        assert run.reaches(lambda n=wanted: plant.last_written() >= n), run.said()
        if ask == signal.SIGTERM:
            second = plant.start()
            assert second.ended() == 6
            assert "HF-R001 StateInUse" in second.said()
            assert str(run.os_process.pid) in second.said()
        run.os_process.send_signal(ask)
        assert run.ended() == 0, run.said()
        assert "plant  stopped" in run.said()
        assert "Traceback" not in run.said()
        assert plant.javas() == []
    plant.finish()
    assert_same(plant, undisturbed)
