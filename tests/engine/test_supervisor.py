"""The supervisor on a board, with a clock that is turned by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.engine.flow.queues import Sealed, StreamQueue, UnitInputState
from holdfast.engine.flow.scheduler import Board, Hold, UnitState
from holdfast.engine.observe.status import why_degraded
from holdfast.engine.recover.attempts import Crew
from holdfast.engine.recover.supervisor import Supervisor
from holdfast.errors import FrameDiffers, OperatorError, UnitError
from holdfast.frames.clock import FrameClock
from holdfast.graph.restarting import restarts


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
            board.streams[stream].acked[name] = 0
    return board


@pytest.fixture
def supervisor(board, clock):
    made = Supervisor(
        board, restarts(tries=2, first="1 second", stalled_after="60 seconds"), now=clock, chance=lambda: 0.0
    )
    for name in board.units:
        made.care(name)
    return made


def sealed(n: int) -> Sealed:
    return Sealed(n, n * 1_000_000, 1, 100, f"c{n}", 1)


def test_a_unit_that_is_renewed_takes_no_frame_meanwhile_and_is_not_ill(board, supervisor):
    """A parameter of an operator with Spark's state changed: nobody is to be woken up for it."""
    supervisor.renew("pulse")
    assert supervisor.due() == ["pulse"]
    assert isinstance(board.next_permit(board.units["pulse"]), Hold)
    assert why_degraded(board, (), ()) == ""
    assert supervisor.degraded_since_s is None
    supervisor.restarted("pulse")
    assert board.units["pulse"].condition == "RUNNING"
    assert board.units["pulse"].restarts == 0


def test_a_death_is_answered_after_a_pause_and_once(board, clock, supervisor):
    supervisor.died("pulse", 7, killed())
    assert supervisor.due() == []
    assert board.units["pulse"].condition == "RESTARTING"
    assert "try 1 of 2, next in 1 s" in board.units["pulse"].trouble
    clock.now_s += 1.0
    assert supervisor.due() == ["pulse"]
    assert supervisor.due() == []
    supervisor.restarted("pulse")
    assert board.units["pulse"].condition == "RUNNING"
    assert board.units["pulse"].restarts == 1


def test_while_it_is_down_it_gets_no_permit_and_the_others_say_who_holds_them(board, supervisor):
    for source in ("ecg", "acc"):
        board.seal(source, sealed(1))
    supervisor.died("pulse", 1, killed())
    assert isinstance(board.next_permit(board.units["pulse"]), Hold)
    assert not isinstance(board.next_permit(board.units["motion"]), Hold)
    assert board.next_permit(board.units["alarms"]) == Hold("held back by pulse (restarting)")


def test_too_many_deaths_give_it_up_and_what_is_below_stands_still(board, supervisor):
    for _ in range(3):
        supervisor.died("pulse", 7, killed())
    assert board.units["pulse"].condition == "GIVEN_UP"
    assert board.left_out == {"pulse", "alarms"}
    assert supervisor.given_up_error().code == "HF-U033"
    assert not supervisor.is_working


def test_a_source_does_not_wait_for_who_stands_still(board, supervisor):
    for n in range(1, 4):
        board.seal("acc", sealed(n))
    board.acknowledge("acc", "motion", 3)
    assert len(board.streams["acc"].frames) == 3  # alarms may still want them
    for _ in range(3):
        supervisor.died("pulse", 1, killed())
    board.acknowledge("acc", "motion", 3)
    assert board.streams["acc"].frames == {}
    assert board.streams["acc"].waiting_bytes() == 0
    assert board.streams["acc"].acked["alarms"] == 0  # its log keeps them for the next run


def test_a_unit_below_first_takes_what_is_there(board, supervisor):
    for stream in ("ecg", "acc", "pulse", "motion"):
        board.seal(stream, sealed(1))
    for _ in range(3):
        supervisor.died("pulse", 2, killed())
    board.acknowledge("acc", "motion", 1)
    permit = board.next_permit(board.units["alarms"])
    assert permit.n == 1
    board.units["alarms"].permitted = 1
    assert not board.is_idle(board.units["alarms"])
    board.process("alarms", 1, 5.0)
    assert board.is_idle(board.units["alarms"])
    assert board.next_permit(board.units["alarms"]) == Hold("held back by pulse (given up)")


def test_raising_twice_on_a_frame_is_looked_into_once(supervisor, clock):
    supervisor.died("pulse", 7, raised())
    clock.now_s += 1.0
    assert supervisor.due() == ["pulse"]
    supervisor.restarted("pulse")
    supervisor.died("pulse", 7, raised())
    assert supervisor.to_probe() == [("pulse", 7)]
    assert supervisor.to_probe() == []
    assert supervisor.is_working


def test_what_we_found_wrong_ourselves_is_not_tried_again(board, supervisor):
    supervisor.died("pulse", 7, FrameDiffers("HF-F001", "FrameDiffers", "frame 7 came out otherwise.", effect="x"))
    assert board.units["pulse"].condition == "GIVEN_UP"


def starts(board, clock, supervisor, errors) -> int:
    """How often the unit is started before it is given up or the errors are used up."""
    for at, error in enumerate(errors, 1):
        supervisor.died("pulse", 7, error)
        if board.units["pulse"].condition == "GIVEN_UP":
            return at
        clock.now_s += 30.0
        assert supervisor.due() == ["pulse"]
        supervisor.restarted("pulse")
    return at + 1


def test_what_comes_back_in_the_same_way_is_tried_three_times_and_told_once(board, clock):
    """Whatever numbers Spark gives its stages: eight tries of it were minutes, and the advice was to run again."""
    supervisor = Supervisor(board, restarts(tries=8), now=clock, chance=lambda: 0.0)
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
    supervisor = Supervisor(board, restarts(tries=8), now=clock, chance=lambda: 0.0)
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
    supervisor.died("motion", 3, killed())
    clock.now_s += 5.0
    supervisor.died("pulse", 4, raised())
    assert supervisor.degraded_since_s == 100.0
    assert supervisor.last_met.unit == "pulse"
    assert supervisor.last_met.frame == 4


class Attempt:
    """Of a unit: a query that runs, or has ended."""

    committed, error, query, wants_other_values = 4, None, object(), False

    def __init__(self, name: str, alive: bool, meanwhile=lambda: None):
        self.unit = SimpleNamespace(name=name)
        self._alive, self.report = alive, meanwhile

    def is_alive(self) -> bool:
        return self._alive


def test_an_attempt_that_was_replaced_while_others_were_looked_at_is_no_death(board, supervisor):
    """The look has begun with the old attempt in hand; its query has ended, and the next one runs already."""
    crew = Crew(None, None, board, supervisor)
    supervisor.died("alarms", 5, killed())

    def replaced():
        crew.add(Attempt("alarms", alive=True), None)
        supervisor.restarted("alarms")

    crew.add(Attempt("pulse", alive=True, meanwhile=replaced), None)
    crew.add(Attempt("alarms", alive=False), None)
    crew.look()

    assert supervisor.care("alarms").condition == "RUNNING"
    assert (supervisor.care("alarms").restarts, supervisor.care("alarms").attempt) == (1, 1)
