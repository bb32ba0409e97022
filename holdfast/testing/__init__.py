"""Test helpers for the people who write stream processes.

    out = run_frames(ward, ecg=rows("fast_heart.csv"), acc=rows("running.csv"))
    assert out.alarms.num_rows == 0

    same_after_restarts(ward, seeds=range(3))     # restarts change nothing, frame by frame
    same_however_cut(pulse, rows("ecg.csv"))      # nor does the length of a frame

A pytest plug-in comes with the package: the fixture `spark` is one session with
Holdfast's settings, shared by all tests.
"""

from holdfast.testing.cuts import same_however_cut
from holdfast.testing.inputs import rows
from holdfast.testing.runs import Outcome, run_frames, same_after_restarts

__all__ = ["Outcome", "rows", "run_frames", "same_after_restarts", "same_however_cut"]
