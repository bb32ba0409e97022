"""After the machine went down: everybody goes back to what is whole, and nobody wants what is gone."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest

from holdfast.engine import reboot
from holdfast.engine.recover import torn
from holdfast.engine.recover.torn import Below, Found, positions
from holdfast.errors import StateRefused
from holdfast.journals.journal import Journal
from holdfast.journals.lines import checked_line
from holdfast.sources.files import grown
from holdfast.sources.live.log import first_kept


def test_a_unit_goes_back_behind_a_frame_that_somebody_still_needs():
    """Its commit record got to the disk and the frame did not: its consumer would wait for ever."""
    maker = Found([7, 6, 5, 4, 0], {"s": {4, 6, 7}}, {"s": [Below("reader")]})
    reader = Found([4, 3, 0], {"out": {4}}, {"out": [Below(has=4)]})

    assert positions({"maker": maker, "reader": reader}) == {"maker": 4, "reader": 4}


def test_a_frame_that_all_have_may_be_gone():
    maker = Found([7, 6, 0], {"s": {7}}, {"s": [Below("reader"), Below(has=9)]})
    reader = Found([6, 0], {})

    assert positions({"maker": maker, "reader": reader}) == {"maker": 7, "reader": 6}


def test_a_feedback_edge_needs_frames_of_before():
    maker = Found([7, 6, 5, 0], {"s": {6, 7}}, {"s": [Below("maker", delay=2)]})

    assert positions({"maker": maker}) == {"maker": 7}
    maker.frames["s"] = {4, 5, 7}
    assert positions({"maker": maker}) == {"maker": 5}


def test_units_with_spark_state_need_what_spark_needs_again():
    """Their journal may be ahead of the state that was listed as synced."""
    maker = Found([9, 8, 5, 0], {"s": {7, 8, 9}}, {"s": [Below("reader")]})
    reader = Found([9, 0], {}, spark=5)

    assert positions({"maker": maker, "reader": reader}) == {"maker": 5, "reader": 9}


@pytest.mark.parametrize("seed", range(200))
def test_whatever_was_lost_after_the_settled_cuts_everybody_finds_what_it_needs(seed):
    """A random chain of units under the rules of `engine.protect.durable`, cut at a random moment."""
    chance = random.Random(seed)
    names = [f"u{at}" for at in range(chance.randint(1, 4))]
    sealed = sorted((chance.randint(3, 20) for _ in names), reverse=True)  # nobody is ahead of who makes its input
    durable = [chance.randint(0, n) for n in sealed]
    settled = [chance.randint(0, n) for n in durable]
    found, acked = {}, {}
    for at, name in enumerate(names):
        below = settled[at + 1] - 2 if at + 1 < len(names) else chance.randint(0, durable[at])
        acked[name] = max(0, below)
    for at, name in enumerate(names):
        # Records: all up to the durable one are there; of state, that of the settled cut and the durable one for sure.
        last = chance.randint(durable[at], sealed[at])
        whole = [n for n in range(settled[at], last + 1) if n in (settled[at], durable[at]) or chance.random() < 0.5]
        # Frames: below what is acknowledged all may be deleted; up to the settled cut the rest is synced.
        there = {n for n in range(acked[name] + 1, sealed[at] + 1) if n <= settled[at] or chance.random() < 0.5}
        reader = Below(names[at + 1]) if at + 1 < len(names) else Below(has=acked[name])
        found[name] = Found([*sorted(whole, reverse=True), 0], {name: there}, {name: [reader]})

    at = positions(found)

    for place, name in enumerate(names):
        assert at[name] >= settled[place], "it wants inputs that were acknowledged"
        reader = found[name].below[name][0]
        needs = at[reader.unit] if reader.unit else reader.has
        assert all(n in found[name].frames[name] for n in range(needs + 1, at[name] + 1))


@pytest.mark.parametrize(
    "tail", [b"\0" * 300, b'{"n":4,"st', b'\0\0\0\n{"n":5}\n', b"\n\0"], ids=["zeros", "half", "middle", "end"]
)
def test_a_torn_tail_is_cut_off_whatever_it_is(tmp_path, tail):
    """A page of zeros with a good line behind it is what a reordering disk leaves."""
    journal = Journal(tmp_path, "commits")
    for n in (1, 2, 3):
        journal.append({"n": n, "state": {}})
    journal.close()
    [segment] = tmp_path.glob("commits.*.jsonl")
    whole = segment.read_bytes()
    segment.write_bytes(whole + tail)

    reboot.cut_torn([tmp_path])

    assert segment.read_bytes().rstrip(b"\n") == whole.rstrip(b"\n")
    assert [entry["n"] for entry in Journal(tmp_path, "commits").entries()] == [1, 2, 3]


def test_of_a_journal_that_is_synced_only_the_last_line_can_be_torn(tmp_path):
    """Anything else is damage, and must not be passed over."""
    path = tmp_path / "changes.000000000001.jsonl"
    path.write_bytes(b'{"n":1}\n\0\0\0\n{"n":3}\n')
    reboot.cut_torn([tmp_path])
    assert path.read_bytes() == b'{"n":1}\n\0\0\0\n{"n":3}\n'

    path.write_bytes(b'{"n":1}\n{"n":2}\n\0\0')
    reboot.cut_torn([tmp_path])
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'


def _unit(folder, outputs=("s",), last=5):
    unit = SimpleNamespace(name="u", outputs=outputs, inputs=(SimpleNamespace(stream="rows", feedback_frames=0),))
    journal = Journal(folder, "commits")
    for n in range(1, last + 1):
        journal.append({"n": n, "state": {}})
    journal.close()
    return unit


def _go_back(tmp_path, unit, *, has, changed=(), first=1):
    (tmp_path / "s").mkdir(exist_ok=True)
    return torn.go_back(
        [unit], {"u": tmp_path / "u"}, {"s": tmp_path / "s"}, {"u": 0}, {"s": [has]},
        spark=(), changed=changed, first={"rows": first},
    )  # fmt: skip


def test_which_frames_are_made_again_is_said(tmp_path):
    (tmp_path / "u").mkdir()
    unit = _unit(tmp_path / "u")

    [said] = _go_back(tmp_path, unit, has=3)  # frames 4 and 5 are not in the queue

    assert "unit u makes frames 4 to 5 again" in said
    assert [entry["n"] for entry in Journal(tmp_path / "u", "commits").entries()] == [1, 2, 3]


def test_frames_are_not_made_again_by_other_code(tmp_path):
    """The remedy: the code as it was makes them, then the change is taken."""
    (tmp_path / "u").mkdir()
    unit = _unit(tmp_path / "u")
    with pytest.raises(StateRefused) as refused:
        _go_back(tmp_path, unit, has=3, changed=["u"])
    assert refused.value.code == "HF-R051" and "frames 4 to 5" in refused.value.what

    assert _go_back(tmp_path, unit, has=3)  # as it was
    assert _go_back(tmp_path, unit, has=3, changed=["u"]) == []  # then with the change: nothing is torn any more


def test_state_that_is_gone_with_its_inputs_is_refused(tmp_path):
    (tmp_path / "u").mkdir()
    unit = _unit(tmp_path / "u")
    with pytest.raises(StateRefused) as refused:
        _go_back(tmp_path, unit, has=0, first=3)
    assert refused.value.code == "HF-R052" and "restore the state folder" in refused.value.do
    assert "begin with frame 1 again" in refused.value.what and "begins with frame 3" in refused.value.why
    assert _go_back(tmp_path, unit, has=3, first=3)  # the state that was gone is back


def test_a_live_process_that_has_all_its_input_may_begin_again(tmp_path):
    """In its first moments nothing is settled yet, and nothing was forgotten: the log of the source has every row."""
    (tmp_path / "u").mkdir()
    unit = _unit(tmp_path / "u", last=1)
    [said] = _go_back(tmp_path, unit, has=0, first=1)
    assert "unit u makes frames 1 to 1 again" in said


def test_what_a_live_source_still_has_is_seen_without_opening_it(tmp_path):
    assert first_kept(tmp_path) == 1
    log = tmp_path / "log"
    log.mkdir()
    seals = [
        checked_line(
            {"frame": {"n": n, "references": [{"batch": n}] if n != 3 else [], "quarantined": []}, "state": {}}
        )
        for n in range(1, 6)
    ]
    (log / "seals.jsonl").write_bytes(b"".join(seals))
    for batch in (1, 2, 4, 5):
        (log / f"{batch:012d}.arrow").touch()
    assert first_kept(tmp_path) == 1
    (log / f"{1:012d}.arrow").unlink()
    (log / f"{2:012d}.arrow").unlink()
    assert first_kept(tmp_path) == 3

    assert grown.first_kept(tmp_path) == 1
    (tmp_path / "grown.jsonl").write_bytes(
        checked_line({"frames": [{"n": 7}, {"n": 8}]}) + checked_line({"frames": [{"n": 9}]})
    )
    assert grown.first_kept(tmp_path) == 7


def test_a_folder_is_looked_at_once_after_every_boot(tmp_path, monkeypatch):
    assert not reboot.may_be_torn(tmp_path)  # new, or of a version that knew no mark
    monkeypatch.setattr(reboot, "boot_id", lambda: "first")
    reboot.mark_booted(tmp_path)
    assert not reboot.may_be_torn(tmp_path)
    monkeypatch.setattr(reboot, "boot_id", lambda: "second")
    assert reboot.may_be_torn(tmp_path)
    reboot.mark_booted(tmp_path)
    assert not reboot.may_be_torn(tmp_path)
    monkeypatch.setattr(reboot, "boot_id", lambda: "")  # a system that has none: nobody can tell
    assert reboot.may_be_torn(tmp_path)
    reboot.mark_booted(tmp_path)
    assert reboot.may_be_torn(tmp_path)


def test_what_spark_wrote_and_nobody_listed_is_left_out(tmp_path):
    from holdfast.engine.unit.spark_files import SparkFiles, keep_listed

    checkpoint = tmp_path / "3"
    for name in ("offsets/0", "commits/0", "state/0/0/1_a.changelog"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(name)
    files = SparkFiles(checkpoint, lambda: (0, 7))
    assert files.committed() == 7
    files.make_durable(7)
    (checkpoint / "commits" / "1").write_text("")
    (checkpoint / "state" / "0" / "0" / "2_b.zip").write_bytes(b"\0" * 100)
    (tmp_path / "4").mkdir()  # a fork that was under way

    assert keep_listed(tmp_path) == 7

    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["3.ready", "3.synced", "3/commits/0", "3/offsets/0", "3/state/0/0/1_a.changelog"]
    assert json.loads((tmp_path / "3.synced").read_text())["frame"] == 7


def test_seals_of_one_call_are_torn_together_and_older_ones_never(tmp_path):
    """A closed frame that is cut off would be closed otherwise; half a group must not keep the source from opening."""
    path = tmp_path / "seals.jsonl"
    first = checked_line({"frame": {"n": 1}, "state": {}})
    group = [checked_line({"frame": {"n": 2}}), checked_line({"frame": {"n": 3}, "state": {}})]
    path.write_bytes(first + b"\0" * len(group[0]) + b"\n" + group[1])
    reboot.cut_torn([tmp_path])
    assert path.read_bytes() == first

    damaged = b"x" + first[1:] + b"".join(group) + checked_line({"frame": {"n": 4}, "state": {}})
    path.write_bytes(damaged)
    reboot.cut_torn([tmp_path])
    assert path.read_bytes() == damaged  # for the log to say
