"""The supervisor on a board, with a clock that is turned by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.engine.flow.queues import Sealed, StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, Hold, UnitState
from holdfast.engine.observe.status import why_degraded
from holdfast.engine.recover.attempts import Crew
from holdfast.engine.recover.restore import Begun
from holdfast.engine.recover.supervisor import Supervisor, cause_of
from holdfast.errors import FrameDiffers, OperatorError, UnitError
from holdfast.frames.clock import FrameClock
from holdfast.graph.edge_ids import Consumer
from holdfast.graph.restarting import restarts
from holdfast.protocols.lifecycle import (
    Looked,
    Probe,
    QueryEnded,
    RenewalWanted,
    Restore,
    Restored,
    Started,
    State,
)


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def killed() -> UnitError:
    return UnitError("HF-U033", "WorkerDied", "a Python worker of unit 'pulse' died.", effect="nothing is lost")


def raised(what: str = "ValueError: x") -> OperatorError:
    return OperatorError("HF-O001", "OperatorRaised", what, effect="nothing is lost")


def ended(what: str = "the query of unit 'pulse' ended: [ARROW_TYPE_MISMATCH] in stage 3.0") -> UnitError:
    return UnitError(
        "HF-U031", "UnitDied", what, where="frame 7", why="[ARROW_TYPE_MISMATCH]", effect="nothing is lost"
    )


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def board():
    """ecg -> pulse -> alarms <- motion <- acc; alarms reads acc too."""
    board = Board(closing_frames=1)
    board.clock = FrameClock(0, 1_000_000)
    for source in ("ecg", "acc"):
        board.streams[source] = StreamQueue(source, 10_000, True)
    for stream in ("pulse", "motion", "alarms"):
        board.streams[stream] = StreamQueue(stream, 10_000, False)
    wiring = {"pulse": ("ecg",), "motion": ("acc",), "alarms": ("pulse", "motion", "acc")}
    for name, inputs in wiring.items():
        board.units[name] = UnitState(name, tuple(map(UnitInputState, inputs)), (name,))
        for stream in inputs:
            board.streams[stream].acked[Consumer.unit(name)] = 0
    return board


def running(supervisor, board) -> Supervisor:
    """All units have started."""
    for name in board.units:
        supervisor.handle(name, Started(supervisor.now(), 0))
    return supervisor


@pytest.fixture
def supervisor(board, clock):
    policy = restarts(tries=2, first="1 second", stalled_after="60 seconds")
    return running(Supervisor(board, policy, now=clock, chance=lambda: 0.0), board)


def died(supervisor, unit, frame, error):
    """Its query ended."""
    return supervisor.handle(unit, QueryEnded(supervisor.now(), supervisor.life(unit).attempt, frame, cause_of(error)))


def due(supervisor, board):
    """Units whose restart begins now."""
    has_room = not board.held_for_space
    return [
        name
        for name in board.units
        if any(isinstance(each, Restore) for each in supervisor.handle(name, Looked(supervisor.now(), has_room)))
    ]


def restarted(supervisor, unit):
    attempt = supervisor.life(unit).attempt
    supervisor.handle(unit, Restored(supervisor.now(), attempt, from_backup=False))
    supervisor.handle(unit, Started(supervisor.now(), attempt))


def keeps_dying(supervisor, board, clock, unit, frame, error, times=3):
    """It dies, and is started again if it is."""
    for _ in range(times):
        died(supervisor, unit, frame, error)
        clock.now_s += 30.0
        if unit in due(supervisor, board):
            restarted(supervisor, unit)


def sealed(n: int) -> Sealed:
    return Sealed(n, n * 1_000_000, 1, 100, f"c{n}", 1)


def test_a_unit_that_is_renewed_takes_no_frame_meanwhile_and_is_not_ill(board, supervisor):
    """A parameter of an operator with Spark's state changed: nobody is to be woken up for it."""
    supervisor.handle("pulse", RenewalWanted(supervisor.now()))
    assert due(supervisor, board) == ["pulse"]
    assert isinstance(board.next_permit(board.units["pulse"]), Hold)
    assert why_degraded(board, (), ()) == ""
    assert supervisor.degraded_since_s is None
    restarted(supervisor, "pulse")
    assert board.units["pulse"].condition == "RUNNING"
    assert board.units["pulse"].restarts == 0


def test_a_death_is_answered_after_a_pause_and_once(board, clock, supervisor):
    died(supervisor, "pulse", 7, killed())
    assert due(supervisor, board) == []
    assert board.units["pulse"].condition == "RESTARTING"
    assert "try 1 of 2, next in 1 s" in board.units["pulse"].trouble
    clock.now_s += 1.0
    assert due(supervisor, board) == ["pulse"]
    assert due(supervisor, board) == []
    restarted(supervisor, "pulse")
    assert board.units["pulse"].condition == "RUNNING"
    assert board.units["pulse"].restarts == 1


def test_while_it_is_down_it_gets_no_permit_and_the_others_say_who_holds_them(board, supervisor):
    for source in ("ecg", "acc"):
        board.seal(source, sealed(1))
    died(supervisor, "pulse", 1, killed())
    assert isinstance(board.next_permit(board.units["pulse"]), Hold)
    assert not isinstance(board.next_permit(board.units["motion"]), Hold)
    assert board.next_permit(board.units["alarms"]) == Hold("held back by pulse (restarting)")


def test_too_many_deaths_give_it_up_and_what_is_below_stands_still(board, clock, supervisor):
    keeps_dying(supervisor, board, clock, "pulse", 7, killed())
    assert board.units["pulse"].condition == "GIVEN_UP"
    assert board.left_out == {"pulse", "alarms"}
    assert supervisor.given_up_error().code == "HF-U033"
    assert not supervisor.is_working


def test_a_source_does_not_wait_for_who_stands_still(board, clock, supervisor):
    for n in range(1, 4):
        board.seal("acc", sealed(n))
    board.acknowledge("acc", Consumer.unit("motion"), 3)
    assert len(board.streams["acc"].frames) == 3  # alarms may still want them
    keeps_dying(supervisor, board, clock, "pulse", 1, killed())
    board.acknowledge("acc", Consumer.unit("motion"), 3)
    assert board.streams["acc"].frames == {}
    assert board.streams["acc"].waiting_bytes() == 0
    assert board.streams["acc"].acked[Consumer.unit("alarms")] == 0  # its log keeps them for the next run


def test_a_unit_below_first_takes_what_is_there(board, clock, supervisor):
    for stream in ("ecg", "acc", "pulse", "motion"):
        board.seal(stream, sealed(1))
    keeps_dying(supervisor, board, clock, "pulse", 2, killed())
    board.acknowledge("acc", Consumer.unit("motion"), 1)
    permit = board.next_permit(board.units["alarms"])
    assert permit.n == 1
    board.units["alarms"].permitted = 1
    assert not board.is_idle(board.units["alarms"])
    board.process("alarms", 1, 5.0)
    assert board.is_idle(board.units["alarms"])
    assert board.next_permit(board.units["alarms"]) == Hold("held back by pulse (given up)")


def test_raising_twice_on_a_frame_is_looked_into_once(board, supervisor, clock):
    died(supervisor, "pulse", 7, raised())
    clock.now_s += 1.0
    assert due(supervisor, board) == ["pulse"]
    restarted(supervisor, "pulse")
    told = died(supervisor, "pulse", 7, raised())
    assert [each for each in told if isinstance(each, Probe)] == [Probe(1, 7)]
    assert died(supervisor, "pulse", 7, raised()) == []
    assert supervisor.is_working


def test_what_we_found_wrong_ourselves_is_not_tried_again(board, supervisor):
    died(supervisor, "pulse", 7, FrameDiffers("HF-F001", "FrameDiffers", "frame 7 came out otherwise.", effect="x"))
    assert board.units["pulse"].condition == "GIVEN_UP"


def starts(board, clock, supervisor, errors) -> int:
    """How often the unit is started before it is given up or the errors are used up."""
    for at, error in enumerate(errors, 1):
        died(supervisor, "pulse", 7, error)
        if board.units["pulse"].condition == "GIVEN_UP":
            return at
        clock.now_s += 30.0
        assert due(supervisor, board) == ["pulse"]
        restarted(supervisor, "pulse")
    return at + 1


def test_what_comes_back_in_the_same_way_is_tried_three_times_and_told_once(board, clock):
    """Whatever numbers Spark gives its stages: eight tries of it were minutes, and the advice was to run again."""
    supervisor = running(Supervisor(board, restarts(tries=8), now=clock, chance=lambda: 0.0), board)
    errors = [ended(f"the query of unit 'pulse' ended: [ARROW_TYPE_MISMATCH] in stage {3 * n}.0") for n in range(8)]
    assert starts(board, clock, supervisor, errors) == 3
    error = supervisor.given_up_error()
    assert (error.code, error.exit_code, error.where, error.effect) == ("HF-U074", 5, "frame 7", "nothing is lost")
    assert "met the same error 3 times at frame 7" in error.what and error.what.count("ARROW_TYPE_MISMATCH") == 1
    assert "running again alone meets it again" in error.do
    assert board.units["pulse"].trouble.endswith("given up after 2 restarts")
    assert supervisor.last_met.error is error


@pytest.mark.parametrize(
    "errors",
    [
        [killed()] * 8,  # may pass
        [ended("the query of unit 'pulse' ended: ConnectionError: x")] * 8,
        [ended(), ended("the query of unit 'pulse' ended: NullPointerException")] * 4,
    ],
)
def test_what_may_pass_or_is_not_the_same_keeps_its_tries(board, clock, errors):
    for error in errors:
        error.may_pass = error.may_pass or "ConnectionError" in error.what
    supervisor = running(Supervisor(board, restarts(tries=8), now=clock, chance=lambda: 0.0), board)
    assert starts(board, clock, supervisor, errors) == 9


def test_a_frame_too_long_in_work_is_a_stall_and_idleness_is_not(board, clock, supervisor):
    clock.now_s += 1000.0
    assert supervisor.stalled("motion") is None  # nothing to do
    board.units["motion"].permitted = 1
    clock.now_s += 59.0
    assert supervisor.stalled("motion") is None
    clock.now_s += 2.0
    assert supervisor.stalled("motion") == 61.0
    board.process("motion", 1, 5.0)
    assert supervisor.stalled("motion") is None


def test_frames_that_are_slow_but_come_are_no_stall(board, clock, supervisor):
    for n in range(1, 5):
        board.units["motion"].permitted = n
        clock.now_s += 50.0
        assert supervisor.stalled("motion") is None
        board.process("motion", n, 50_000.0)
        supervisor.stalled("motion")


def test_the_worst_moment_is_told(supervisor, clock):
    assert supervisor.degraded_since_s is None
    died(supervisor, "motion", 3, killed())
    clock.now_s += 5.0
    died(supervisor, "pulse", 4, raised())
    assert supervisor.degraded_since_s == 100.0
    assert supervisor.last_met.unit == "pulse"
    assert supervisor.last_met.frame == 4


class Attempt:
    """Of a unit: a query that runs, or has ended."""

    committed, error, query, wants_other_values = 4, None, object(), False

    def __init__(self, name: str, number: int, alive: bool, meanwhile=lambda: None):
        self.unit, self.attempt = SimpleNamespace(name=name), number
        self._alive, self.report = alive, meanwhile

    def is_alive(self) -> bool:
        return self._alive


def test_an_attempt_that_was_replaced_while_others_were_looked_at_is_no_death(board, clock, supervisor):
    """The look has begun with the old attempt in hand; its query has ended, and the next one runs already."""
    crew = Crew(None, None, board, supervisor)
    died(supervisor, "alarms", 5, killed())
    clock.now_s += 1.0
    assert due(supervisor, board) == ["alarms"]

    def replaced():
        crew.add(Attempt("alarms", 1, alive=True), None)
        restarted(supervisor, "alarms")

    crew.add(Attempt("pulse", 0, alive=True, meanwhile=replaced), None)
    crew.add(Attempt("alarms", 0, alive=False), None)
    crew.look()

    assert supervisor.life("alarms").state is State.RUNNING
    assert (supervisor.life("alarms").restarts, supervisor.life("alarms").tries) == (1, 1)


@pytest.mark.parametrize(("lossy", "condition"), [(False, "GIVEN_UP"), (True, "RUNNING")])
def test_a_unit_is_not_put_back_behind_a_change_of_its_code(board, clock, supervisor, lossy, condition):
    """Changed after frame 4, its host is lost, and the newest checkpoint is of frame 2: who may lose makes nothing again."""
    noted = SimpleNamespace(note=lambda *said, **more: None)
    crew = Crew(
        SimpleNamespace(name="ward"),
        SimpleNamespace(raise_epoch=lambda: 7, begin_at=lambda *said: None),
        board,
        supervisor,
        aside=lambda name, work: work(),
    )
    crew._incidents, crew._go_on = noted, lambda *said: {}
    crew._recovery = SimpleNamespace(begin=lambda *said, **more: Begun(7, True, False, ()))
    crew._guards = SimpleNamespace(leave=lambda name: None, is_lossy=lambda name: lossy)
    first, second = Attempt("pulse", 0, alive=False), Attempt("pulse", 1, alive=True)
    first.made_after, first.settled, first.abandon = 4, 0, lambda: None
    second.committed, second.recover, second.start, second.unit.outputs = 2, lambda: 2, lambda spark: None, ()
    crew.add(first, lambda **more: second)
    died(supervisor, "pulse", 5, killed())
    clock.now_s += 1.0

    crew.look()

    assert supervisor.life("pulse").condition == condition and second.made_after == 4
    if not lossy:
        error = supervisor.given_up_error()
        assert error.code == "HF-R051" and "frames 3 to 4 " in error.what and "--until-frame 4" in error.do
