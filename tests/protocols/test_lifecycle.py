"""The life of a unit, event by event, and under any sequence of events at all. No clock, no thread, no Spark."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Remedy
from holdfast.graph.restarting import RestartPolicy
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.lifecycle import (
    DOUBT_S,
    EVENTS,
    ROOM_S,
    TABLE,
    Abandon,
    Announce,
    AskMaker,
    AttemptFailed,
    Cause,
    Cured,
    Disown,
    EndRun,
    FrameUnreadable,
    HostLost,
    InputGone,
    LeaveOut,
    LeftOut,
    Life,
    Looked,
    LoseStreams,
    NotCured,
    Note,
    Probe,
    ProbeFailed,
    PutBack,
    QueryEnded,
    RenewalWanted,
    Restore,
    Restored,
    Stalled,
    Start,
    Started,
    State,
    Stopping,
    Wake,
)

KILLED = Cause("worker died", Remedy.RETRY, passes=True)
RAISED = Cause("ValueError: x", Remedy.RETRY, of_user=True)
UNKNOWN = Cause("NullPointerException", Remedy.RETRY)
FULL = Cause("disk full", Remedy.WAIT)
LOST = Cause("host lost", Remedy.RESTORE, passes=True)
DAMAGED = Cause("state damaged", Remedy.RESTORE, passes=True, doubtful=True)
UNREADABLE = Cause("frame damaged", Remedy.REMAKE, passes=True, doubtful=True)
FRAMES_GONE = Cause("frames lost", Remedy.REMAKE, passes=True)
DIFFERS = Cause("frame differs", Remedy.GIVE_UP, doubtful=True)
JVM_GONE = Cause("jvm died", Remedy.END)


def life(tries: int = 3, **how: bool) -> Life:
    """Running, with pauses of 1, 2, 4 seconds."""
    settings = {"has_host": True, "can_restore": True} | how
    made = Life("pulse", RestartPolicy(tries=tries, first_s=1.0, jitter=0.0), lambda: 0.0, **settings)
    assert made.handle(Started(0.0, 0)) == []
    return made


def killed(unit: Life, at_s: float, cause: Cause = KILLED, frame: int = 7) -> list:
    return unit.handle(QueryEnded(at_s, unit.attempt, frame, cause))


def begun(unit: Life, at_s: float, **how: bool) -> Restore:
    """The restart that is due then has begun; what was asked for."""
    abandon, restore = unit.handle(Looked(at_s, **how))
    assert abandon == Abandon(restore.attempt - 1)
    return restore


def brought_back(unit: Life, at_s: float, from_backup: bool = False) -> Restore:
    restore = begun(unit, at_s)
    tell = PutBack if from_backup else Announce
    assert unit.handle(Restored(at_s, restore.attempt, from_backup)) == [tell(restore.attempt), Start(restore.attempt)]
    assert unit.handle(Started(at_s, restore.attempt)) == []
    return restore


# ---- a death ----


def test_a_death_is_answered_after_a_pause_by_another_attempt():
    unit = life()
    assert killed(unit, 10.0) == [Note(7, KILLED, 1), Wake(11.0)]
    assert (unit.state, unit.condition) == (State.DOWN, "RESTARTING")
    assert unit.handle(Looked(10.9)) == []
    assert begun(unit, 11.0) == Restore(1, near_is_good=True, frames_are_gone=False)
    assert unit.state is State.RESTORING
    assert unit.handle(Looked(12.0)) == []


def test_what_was_committed_and_never_said_is_announced_before_the_next_attempt_starts():
    """An attempt that died between its commit and its word left a frame that nobody below was told of."""
    unit = life()
    killed(unit, 10.0)
    restore = begun(unit, 11.0)
    assert unit.handle(Restored(12.0, restore.attempt, from_backup=False)) == [Announce(1), Start(1)]
    assert unit.state is State.STARTING


def test_a_restore_from_a_backup_tells_the_others_where_it_goes_on():
    unit = life()
    unit.handle(HostLost(10.0, 0, 7, LOST))
    assert brought_back(unit, 11.0, from_backup=True) == Restore(1, near_is_good=False, frames_are_gone=False)


def test_a_unit_that_runs_again_is_well_and_its_restart_is_counted():
    unit = life()
    killed(unit, 10.0)
    brought_back(unit, 11.0)
    assert (unit.state, unit.restarts, unit.cause, unit.since_s) == (State.RUNNING, 1, None, None)


def test_a_unit_that_is_down_cannot_die():
    unit = life(tries=1)
    killed(unit, 10.0)
    assert killed(unit, 10.1) == [] == unit.handle(Stalled(10.2, 0, 7, KILLED))
    assert unit.state is State.DOWN


def test_an_attempt_that_was_replaced_is_no_death():
    """Its query has ended, and whoever looked had it in hand before the next one started."""
    unit = life()
    killed(unit, 10.0)
    brought_back(unit, 11.0)
    assert unit.handle(QueryEnded(12.0, 0, 7, KILLED)) == []
    assert unit.handle(Stalled(12.0, 0, 7, KILLED)) == []
    assert unit.state is State.RUNNING


def test_more_deaths_than_tries_give_it_up():
    unit = life(tries=2)
    for at_s in (10.0, 20.0):
        killed(unit, at_s)
        brought_back(unit, at_s + 5)
    assert killed(unit, 30.0) == [LeaveOut(7, KILLED, 2)]
    assert (unit.state, unit.condition) == (State.GIVEN_UP, "GIVEN_UP")
    assert unit.handle(Looked(1e6)) == []


def test_the_same_three_times_is_given_up_and_says_so():
    unit = life(tries=8)
    for at_s in (10.0, 20.0):
        killed(unit, at_s, UNKNOWN)
        brought_back(unit, at_s + 5)
    assert killed(unit, 30.0, UNKNOWN) == [LeaveOut(7, UNKNOWN, 2, same=3)]


def test_a_stall_is_a_death():
    unit = life()
    assert unit.handle(Stalled(10.0, 0, 7, KILLED)) == [Note(7, KILLED, 1), Wake(11.0)]


def test_below_one_that_was_given_up_nothing_is_tried_again():
    unit = life()
    assert unit.handle(LeftOut()) == []
    assert killed(unit, 10.0) == [LeaveOut(7, KILLED, 0)]


def test_without_the_jvm_the_run_ends():
    unit = life()
    assert killed(unit, 10.0, JVM_GONE) == [EndRun(JVM_GONE)]
    assert unit.handle(Looked(1e6)) == []


def test_what_we_found_wrong_ourselves_is_not_tried_again():
    assert killed(life(has_host=False), 10.0, DIFFERS) == [LeaveOut(7, DIFFERS, 0)]


def test_a_restart_that_fails_is_a_death_and_the_pause_grows():
    unit = life()
    killed(unit, 10.0)
    restore = begun(unit, 11.0)
    assert unit.handle(AttemptFailed(12.0, restore.attempt, 7, KILLED)) == [Note(7, KILLED, 2), Wake(14.0)]
    assert begun(unit, 14.0).attempt == 2


def test_a_start_that_fails_is_a_death():
    unit = life()
    killed(unit, 10.0)
    unit.handle(Restored(11.0, begun(unit, 11.0).attempt, False))
    assert unit.handle(AttemptFailed(12.0, 1, 7, KILLED)) == [Note(7, KILLED, 2), Wake(14.0)]


def test_it_is_ill_since_its_first_death_and_not_since_its_last():
    unit = life()
    killed(unit, 10.0)
    unit.handle(AttemptFailed(12.0, begun(unit, 11.0).attempt, 7, KILLED))
    assert unit.since_s == 10.0


# ---- a full disk ----


def test_a_full_disk_is_waited_for_and_no_try_is_counted():
    unit = life(tries=1)
    at_s = 10.0
    assert killed(unit, at_s, FULL) == [Note(7, FULL, 0), Wake(at_s + ROOM_S)]
    for _ in range(20):  # many more than there are tries
        at_s += 10
        assert unit.handle(Looked(at_s, has_room=False)) == [Wake(at_s + ROOM_S)]
    restore = begun(unit, at_s)
    assert unit.handle(AttemptFailed(at_s, restore.attempt, 7, FULL)) == [Note(7, FULL, 0), Wake(at_s + ROOM_S)]


def test_others_do_not_wait_for_room():
    unit = life()
    killed(unit, 10.0)
    assert begun(unit, 11.0, has_room=False).attempt == 1


# ---- a lost host ----


def test_a_lost_host_disowns_the_attempt_before_its_streams_are_lost():
    unit = life()
    assert unit.handle(HostLost(10.0, 0, 7, LOST)) == [Disown(0), LoseStreams(), Note(7, LOST, 1), Wake(11.0)]
    assert begun(unit, 11.0) == Restore(1, near_is_good=False, frames_are_gone=False)


def test_a_loss_is_one_death_however_often_it_is_noticed():
    unit = life(tries=1)
    unit.handle(HostLost(10.0, 0, 7, LOST))
    assert unit.handle(HostLost(10.5, 0, 7, LOST)) == []
    brought_back(unit, 11.0, from_backup=True)
    assert unit.handle(HostLost(12.0, 0, 7, LOST)) == []
    assert unit.state is State.RUNNING


@pytest.mark.parametrize("reported", ["restored", "failed", "started"])
def test_a_loss_while_an_attempt_is_made_is_told_when_it_reports_and_counts_once(reported):
    """The attempt meets the loss itself, too: the two are one death."""
    unit = life(tries=8)
    killed(unit, 10.0)
    restore = begun(unit, 11.0)
    if reported == "started":
        unit.handle(Restored(11.5, restore.attempt, True))
    assert unit.handle(HostLost(12.0, 0, 7, LOST)) == [LoseStreams()]
    before = unit.state
    assert unit.handle(Looked(100.0)) == [] and unit.state is before  # one attempt at a time
    event = {
        "restored": Restored(13.0, restore.attempt, True),
        "failed": AttemptFailed(13.0, restore.attempt, 7, KILLED),
        "started": Started(13.0, restore.attempt),
    }[reported]
    disowned = [Disown(1)] if reported == "started" else []
    assert unit.handle(event) == [*disowned, Note(7, LOST, 2), Wake(15.0)]
    assert begun(unit, 15.0) == Restore(2, near_is_good=False, frames_are_gone=False)


def test_a_loss_while_it_is_down_changes_from_where_it_comes_back_and_is_no_death():
    unit = life()
    killed(unit, 10.0)
    assert unit.handle(HostLost(10.5, 0, 7, LOST)) == [Disown(0), LoseStreams(), Note(7, LOST, 1)]
    assert begun(unit, 11.0) == Restore(1, near_is_good=False, frames_are_gone=False)


def test_a_second_loss_of_the_same_host_is_another_one():
    unit = life()
    unit.handle(HostLost(10.0, 0, 7, LOST))
    brought_back(unit, 11.0, from_backup=True)
    assert unit.handle(HostLost(20.0, 1, 7, LOST))[:2] == [Disown(1), LoseStreams()]


def test_a_unit_given_up_loses_its_streams_and_nothing_else():
    unit = life(has_host=True, tries=0)
    killed(unit, 10.0)
    assert unit.handle(HostLost(11.0, 0, 7, LOST)) == [LoseStreams()]
    assert unit.handle(HostLost(12.0, 0, 7, LOST)) == []
    assert unit.state is State.GIVEN_UP


def test_a_unit_without_backups_comes_back_from_a_lost_host_with_nothing():
    unit = life(can_restore=False)
    unit.handle(HostLost(10.0, 0, 7, LOST))
    assert begun(unit, 11.0) == Restore(1, near_is_good=False, frames_are_gone=False)


# ---- a missing file ----


def test_a_missing_file_is_suspicious_for_a_moment_and_then_damage():
    unit = life()
    assert killed(unit, 10.0, DAMAGED) == [Wake(10.0 + DOUBT_S)]
    assert (unit.state, unit.condition) == (State.SUSPECT, "RUNNING")
    assert unit.handle(Looked(11.9)) == []
    assert unit.handle(Looked(12.0)) == [Note(7, DAMAGED, 1), Wake(13.0)]
    assert begun(unit, 13.0) == Restore(1, near_is_good=False, frames_are_gone=False)


def test_a_missing_file_whose_host_turns_out_to_be_lost_is_a_loss_and_one_death():
    unit = life(tries=1)
    killed(unit, 10.0, DAMAGED)
    assert unit.handle(HostLost(11.0, 0, 7, LOST)) == [Disown(0), LoseStreams(), Note(7, LOST, 1), Wake(12.0)]
    assert unit.handle(Looked(12.0)) == [Abandon(0), Restore(1, False, False)]


def test_damage_without_a_backup_gives_it_up():
    """It is not tried again with the very files that cannot be used."""
    unit = life(can_restore=False)
    killed(unit, 10.0, DAMAGED)
    assert unit.handle(Looked(12.0)) == [LeaveOut(7, DAMAGED, 0)]


def test_without_hosts_there_is_nothing_to_wait_for():
    assert killed(life(has_host=False, can_restore=False), 10.0, DAMAGED) == [LeaveOut(7, DAMAGED, 0)]


def test_a_restore_that_fails_does_not_make_the_damage_good():
    unit = life()
    killed(unit, 10.0, DAMAGED)
    unit.handle(Looked(12.0))
    unit.handle(AttemptFailed(14.0, begun(unit, 13.0).attempt, 7, KILLED))
    assert begun(unit, 100.0).near_is_good is False
    unit.handle(Restored(101.0, 2, True))
    unit.handle(Started(101.0, 2))
    killed(unit, 200.0)
    assert begun(unit, 300.0).near_is_good is True


# ---- a frame that cannot be read ----


def test_a_reader_asks_the_maker_until_it_is_answered():
    unit = life()
    assert killed(unit, 10.0, UNREADABLE) == [AskMaker(7, UNREADABLE), Wake(10.0 + ROOM_S)]
    assert unit.handle(Looked(11.0)) == [AskMaker(7, UNREADABLE), Wake(11.0 + ROOM_S)]
    assert unit.handle(RenewalWanted(12.0)) == [Disown(0), Wake(12.0)]
    brought_back(unit, 12.0)
    assert unit.restarts == 0


def test_what_is_damaged_is_not_forgotten_when_an_input_is_made_again():
    unit = life()
    killed(unit, 10.0, DAMAGED)
    assert unit.handle(RenewalWanted(11.0)) == []
    unit.handle(Looked(12.0))
    assert begun(unit, 13.0).near_is_good is False


def test_a_reader_nobody_can_help_is_given_up_once_the_doubt_is_over():
    unit = life()
    killed(unit, 10.0, UNREADABLE)
    assert unit.handle(InputGone(11.0)) == []
    assert unit.handle(InputGone(12.0)) == [LeaveOut(7, UNREADABLE, 0)]


def test_who_is_suspected_of_something_else_does_not_mind_a_missing_input():
    unit = life()
    killed(unit, 10.0, DAMAGED)
    assert unit.handle(InputGone(20.0)) == []


def test_a_maker_that_is_complained_of_goes_back_and_makes_its_frames_again():
    unit = life()
    assert unit.handle(FrameUnreadable(10.0, "sink out", 5, FRAMES_GONE)) == []
    assert unit.handle(FrameUnreadable(11.0, "alarms", 5, FRAMES_GONE)) == []
    assert unit.handle(FrameUnreadable(12.0, "sink out", 5, FRAMES_GONE)) == [
        Disown(0), LoseStreams(), Note(5, FRAMES_GONE, 1), Wake(13.0),
    ]  # fmt: skip
    assert unit.handle(FrameUnreadable(12.1, "alarms", 5, FRAMES_GONE)) == []
    assert begun(unit, 13.0) == Restore(1, near_is_good=True, frames_are_gone=True)


def test_a_complaint_that_ended_does_not_hasten_the_next_one():
    unit = life()
    unit.handle(FrameUnreadable(10.0, "sink out", 5, FRAMES_GONE))
    assert unit.handle(FrameUnreadable(60.0, "sink out", 9, FRAMES_GONE)) == []
    assert unit.state is State.RUNNING


def test_frames_stay_gone_until_a_restore_has_brought_them():
    unit = life()
    for at_s in (10.0, 11.0, 12.0):
        unit.handle(FrameUnreadable(at_s, "sink out", 5, FRAMES_GONE))
    unit.handle(AttemptFailed(14.0, begun(unit, 13.0).attempt, 7, KILLED))
    assert begun(unit, 100.0).frames_are_gone


# ---- rows on which the user's code raises ----


def probed(unit: Life) -> None:
    killed(unit, 10.0, RAISED)
    brought_back(unit, 11.0)
    assert killed(unit, 12.0, RAISED) == [Note(7, RAISED, 1), Probe(1, 7)]
    assert unit.condition == "PROBING"


def test_raising_twice_on_a_frame_is_looked_into_and_a_cure_costs_no_try():
    unit = life()
    probed(unit)
    assert unit.handle(Cured(20.0, 1)) == [Wake(20.0)]
    brought_back(unit, 20.0)
    assert killed(unit, 30.0) == [Note(7, KILLED, 1), Wake(31.0)]


def test_what_no_rows_explain_is_given_up():
    unit = life()
    probed(unit)
    assert unit.handle(NotCured(20.0, 1, 7)) == [LeaveOut(7, RAISED, 1)]


def test_a_search_that_fails_is_a_death():
    unit = life()
    probed(unit)
    assert unit.handle(ProbeFailed(20.0, 1, 7, KILLED)) == [Note(7, KILLED, 2), Wake(22.0)]


def test_a_search_that_a_lost_host_made_void_decides_nothing():
    unit = life()
    probed(unit)
    unit.handle(HostLost(13.0, 0, 7, LOST))
    for late in (Cured(20.0, 1), NotCured(20.0, 1, 7), ProbeFailed(20.0, 1, 7, KILLED)):
        assert unit.handle(late) == []
    assert unit.state is State.DOWN


# ---- the end ----


def test_after_a_stop_nothing_is_begun():
    down, restoring, running = life(), life(), life()
    killed(down, 10.0)
    killed(restoring, 10.0)
    restore = begun(restoring, 11.0)
    for unit in (down, restoring, running):
        unit.handle(Stopping())
    assert down.handle(Looked(1e6)) == []
    assert restoring.handle(Restored(12.0, restore.attempt, False)) == []
    assert restoring.handle(Looked(1e6)) == []
    killed(running, 20.0, RAISED)
    assert running.handle(Looked(1e6)) == []


def test_a_stopping_unit_does_not_seek_rows():
    unit = life()
    killed(unit, 10.0, RAISED)
    brought_back(unit, 11.0)
    unit.handle(Stopping())
    assert killed(unit, 12.0, RAISED) == [Note(7, RAISED, 1)]


# ---- the table ----


def test_every_event_is_answered_in_every_state():
    assert {*TABLE} == {*EVENTS}
    assert all({*row} == {*State} for row in TABLE.values())
    assert all(callable(getattr(Life, name)) for row in TABLE.values() for name in row.values())


def test_what_cannot_be_is_an_error_that_carries_its_story():
    unit = life()
    killed(unit, 10.0)
    with pytest.raises(BrokenInvariant) as broken:
        unit.handle(Restored(11.0, 0, from_backup=False))
    told = str(broken.value)
    assert "the life of unit 'pulse': Restored while DOWN" in told
    assert told.index("RUNNING QueryEnded(at_s=10.0") < told.index("DOWN Restored(at_s=11.0")


def test_an_attempt_that_was_never_made_is_an_error():
    with pytest.raises(BrokenInvariant, match="attempt 3 was never made"):
        life().handle(Started(1.0, 3))


def test_time_that_passes_does_not_crowd_the_story_out():
    unit = life()
    killed(unit, 10.0)
    for _ in range(100):
        unit.handle(Looked(10.5))
    assert [line.split("(")[0] for line in unit.story] == ["STARTING Started", "RUNNING QueryEnded"]


CAUSES = (KILLED, RAISED, UNKNOWN, FULL, DAMAGED, UNREADABLE, DIFFERS)


class World:
    """A driver that does what it is told, and a truth to hold the machine against."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.unit = life(tries=10**6, can_restore=self.chance.random() < 0.8)
        self.now_s, self.hosts_life = 0.0, 0
        self.near_is_good, self.frames_are_there = True, True
        self.disowned: set[int] = set()
        self.made = [0]
        self.losses = self.deaths_of_loss = 0
        self.stopping = False

    def tell(self, event) -> None:
        was_running = self.unit.state in (State.RUNNING, State.SUSPECT)
        for each in self.unit.handle(event):
            match each:
                case Disown(attempt):
                    self.disowned.add(attempt)
                case LoseStreams():
                    assert self.unit.attempt in self.disowned or not was_running, "an attempt outlived its streams"
                    self.frames_are_there = False
                case Abandon(attempt):
                    assert not self.stopping and attempt == self.made[-1]
                case Restore(attempt, near_is_good, _):
                    assert self.unit.state is State.RESTORING and attempt == self.made[-1] + 1
                    assert not near_is_good or self.near_is_good, "restored from what is damaged"
                    self.made.append(attempt)
                case PutBack() | Announce() | Start():
                    assert self.unit.state is State.STARTING and not self.stopping
                case Note(_, cause, _):
                    self.deaths_of_loss += cause is LOST
                case Probe():
                    assert not self.stopping
                case LeaveOut() | AskMaker() | Wake() | EndRun():
                    pass

    def step(self) -> None:
        self.now_s += self.chance.random() * 3
        unit, at_s, attempt = self.unit, self.now_s, self.unit.attempt
        cause = self.chance.choice(CAUSES)
        any_attempt = self.chance.choice((attempt, self.chance.choice(self.made)))
        kind = self.chance.randrange(12)
        if kind == 0:
            if unit.state is State.RUNNING and any_attempt == attempt and cause.remedy is Remedy.RESTORE:
                self.near_is_good = False
            self.tell(QueryEnded(at_s, any_attempt, 7, cause))
        elif kind == 1:
            self.near_is_good = False
            self.losses += 1
            for _ in range(self.chance.randint(1, 3)):
                self.tell(HostLost(at_s, self.hosts_life, 7, LOST))
            self.hosts_life += 1
        elif kind == 2:
            self.tell(FrameUnreadable(at_s, "alarms", 7, FRAMES_GONE))
        elif kind == 3:
            self.tell(self.chance.choice((RenewalWanted(at_s), InputGone(at_s), Stalled(at_s, any_attempt, 7, KILLED))))
        elif kind == 4 and self.chance.random() < 0.02:
            self.stopping = True
            self.tell(Stopping())
        elif kind < 8:
            if unit.state is State.RESTORING:
                if self.chance.random() < 0.5:
                    self.near_is_good = True if unit._loss is None else self.near_is_good
                    self.tell(Restored(at_s, attempt, self.chance.random() < 0.5))
                else:
                    self.tell(AttemptFailed(at_s, attempt, 7, KILLED))
            elif unit.state is State.STARTING:
                self.tell(Started(at_s, attempt))
            elif unit.state is State.PROBING:
                self.tell(self.chance.choice((Cured(at_s, attempt), ProbeFailed(at_s, attempt, 7, KILLED))))
        else:
            self.tell(Looked(at_s, has_room=self.chance.random() < 0.7))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_a_loss_is_one_death_and_damage_is_not_used(seed):
    world = World(seed)
    for _ in range(120):
        world.step()
        assert world.deaths_of_loss <= world.losses
    assert world.unit.attempt == world.made[-1]
