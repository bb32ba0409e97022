"""Asking a run from another shell: who gets no answer is told why, and what to do."""

from __future__ import annotations

import json

import pytest

from holdfast.engine.control import call
from holdfast.engine.folder import StateFolder
from holdfast.errors import UsageError


def test_a_run_that_is_starting_is_not_said_to_be_absent(tmp_path):
    """The second shell is quicker than a Spark session: told to start it, a user would start it twice."""
    folder = StateFolder(tmp_path)
    folder.acquire("hot")
    with pytest.raises(UsageError, match="is starting or ending\n.*\n.*ask again"):
        call(tmp_path, {"do": "status"})
    folder.release()

    with pytest.raises(UsageError, match="it has ended, or was never started here"):
        call(tmp_path, {"do": "status"})


def test_a_killed_run_is_named_as_such(tmp_path):
    """Its note stays behind: the socket in it answers nobody."""
    (tmp_path / "control.json").write_text(json.dumps({"socket": str(tmp_path / "gone")}))

    with pytest.raises(UsageError, match="the last run was killed"):
        call(tmp_path, {"do": "status"})
