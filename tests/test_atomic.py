"""A file is there whole or not at all; with `sync`, content before name and name before return."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import atomic


@pytest.fixture
def calls(monkeypatch):
    """The order in which the disk is spoken to: (what, name)."""
    said: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        said.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        fsync(handle)

    def replaced(source, target):
        said.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return said


def test_content_is_synced_before_the_name_and_the_folder_after(tmp_path, calls):
    """A name that comes back without its content is a file nobody can make sense of."""
    atomic.write_whole(tmp_path / "epoch", "7", sync=True)

    assert [what for what, _ in calls] == ["sync", "rename", "sync"]
    assert calls[0][1].startswith("epoch.") and calls[1:] == [("rename", "epoch"), ("sync", tmp_path.name)]
    assert (tmp_path / "epoch").read_text() == "7"


def test_what_can_be_made_again_is_not_synced(tmp_path, calls):
    atomic.write_whole(tmp_path / "permit.json", b"[]")

    assert calls == [("rename", "permit.json")]


def test_a_write_that_fails_leaves_the_old_content_and_no_draft(tmp_path):
    final = tmp_path / "note"
    atomic.write_whole(final, "old")

    with pytest.raises(ZeroDivisionError), atomic.drafted(final) as draft:
        draft.write_text("half")
        raise ZeroDivisionError

    assert final.read_text() == "old" and os.listdir(tmp_path) == ["note"]


def test_two_drafts_of_one_file_do_not_meet(tmp_path):
    with atomic.drafted(tmp_path / "x") as one, atomic.drafted(tmp_path / "x") as other:
        one.write_text("1")
        other.write_text("2")

    assert one != other and (tmp_path / "x").read_text() == "1"


def test_new_folders_are_named_in_those_above_them(tmp_path, calls):
    atomic.make_folder(tmp_path / "a" / "b", sync=True)
    assert calls == [("sync", tmp_path.name), ("sync", "a")]

    atomic.make_folder(tmp_path / "a" / "b", sync=True)
    assert len(calls) == 2  # they were there


def test_drafts_of_the_dead_are_swept(tmp_path):
    (tmp_path / "epoch.17-0.draft").write_text("8")
    (tmp_path / "epoch").write_text("7")

    assert atomic.sweep(tmp_path) == 1 and os.listdir(tmp_path) == ["epoch"]


def test_a_file_of_the_users_that_ends_like_a_draft_is_not_swept(tmp_path):
    (tmp_path / "letter.draft").write_text("Dear")
    assert atomic.sweep(tmp_path) == 0 and os.listdir(tmp_path) == ["letter.draft"]
