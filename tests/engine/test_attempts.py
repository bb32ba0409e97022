"""A unit dies, loses its host, its files or its frames, and comes back: all of it real but Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.engine.flow.disks import full_while_running
from holdfast.engine.unit.poison_search import NotAgain
from holdfast.engine.unit.protection import damaged_state
from holdfast.errors import FrameDiffers, HoldfastError, OperatorError, UnitError
from holdfast.frames.files import read_frame
from holdfast.frames.identity import Kind
from holdfast.journals.incidents import incidents_of
from holdfast.protocols.lifecycle import DOUBT_S, State
from tests.engine.plant import Plant


@pytest.fixture
def plant(tmp_path):
    """Running, with four frames made, and a checkpoint of each unit stored."""
    made = begun(Plant(tmp_path))
    yield made
    made.end()


def begun(made: Plant) -> Plant:
    made.begin().run()
    made.make(4)
    return made


def killed() -> UnitError:
    return UnitError("HF-U033", "WorkerDied", "a worker died.", effect="nothing is lost")


def raised() -> OperatorError:
    return OperatorError("HF-O001", "OperatorRaised", "it raised.", where="operator 'first', frame 5", effect="none")


def dies(plant: Plant, unit: str, error: Exception | None = None) -> None:
    plant.crew[unit].error = error or killed()
    plant.crew[unit].query.stop()
    plant.later()


def whats(plant: Plant) -> list[tuple[str, str, str]]:
    return [(each.what, each.unit, each.code) for each in incidents_of(plant.folder.root)]


# ---- a death ----


def test_a_dead_unit_goes_on_where_it_was_under_an_epoch_of_its_own(plant):
    old = plant.crew["first"]
    dies(plant, "first")
    assert plant.life("first").state is State.DOWN and plant.board.units["first"].condition == "RESTARTING"
    assert plant.crew["first"] is old
    plant.later(1.0)
    fresh = plant.crew["first"]
    assert fresh is not old and fresh.attempt == 1 and fresh._epoch > old._epoch
    assert (plant.life("first").state, plant.board.units["first"].restarts) == (State.RUNNING, 1)
    plant.make(8)
    assert plant.board.streams["second"].sealed == 8
    assert ("died", "first", "HF-U033") in whats(plant)


def test_what_was_committed_and_never_told_is_announced_by_the_next_attempt(plant):
    """It died between its commit and its word: nobody below ever heard of the frame, and all stood still."""
    plant.crew["first"].dies_after_commit = True
    plant.make(5, "first")
    assert plant.board.streams["first"].sealed == 4 and plant.crew["first"].committed == 5
    plant.later()
    plant.later(1.0)
    assert plant.board.streams["first"].sealed == 5
    plant.make(7)
    assert plant.board.streams["second"].sealed == 7


def test_what_an_attempt_does_after_it_was_replaced_becomes_nothing(plant):
    old = plant.crew["first"]
    permit = plant.board.next_permit(plant.board.units["first"])
    dies(plant, "first")
    plant.later(1.0)
    old.work(permit)
    assert plant.board.streams["first"].sealed == 4
    assert plant.crew["first"].committed == 4


def test_a_start_that_fails_is_tried_again(plant):
    dies(plant, "first")
    plant.crew._spark = killed()
    plant.later(1.0)
    assert plant.life("first").state is State.DOWN and plant.life("first").tries == 2
    plant.crew._spark = None
    plant.later(2.0)
    assert plant.life("first").state is State.RUNNING
    plant.make(6)


def test_without_the_jvm_the_run_ends(plant):
    gone = UnitError("HF-U030", "JvmDied", "Spark's Java process is gone.", effect="nothing is lost")
    dies(plant, "first", gone)
    assert plant.board.error is gone
    plant.later(100.0)  # looks at nothing any more
    assert plant.life("first").attempt == 0


def test_what_comes_out_the_same_each_time_gives_the_unit_up(plant):
    dies(plant, "first", FrameDiffers("HF-F001", "FrameDiffers", "frame 5 came out otherwise.", effect="x"))
    assert plant.life("first").state is State.SUSPECT  # its host may be lost
    plant.later(DOUBT_S)
    assert plant.board.left_out == {"first", "second"}
    assert plant.supervisor.given_up_error().code == "HF-F001"
    assert ("given up", "first", "HF-F001") in whats(plant)


def test_a_full_disk_is_waited_for(plant):
    dies(plant, "first", full_while_running("unit first", OSError(28, "No space left on device"), "nothing is lost"))
    plant.board.held_for_space = "held: disk nearly full"
    plant.later(50.0)
    assert plant.life("first").state is State.DOWN
    plant.board.held_for_space = ""
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING and plant.life("first").tries == 0


def test_a_stall_is_a_death(plant):
    plant.crew.look()
    plant.board.units["first"].permitted = 5
    plant.crew.look()
    plant.now_s += 301.0
    plant.crew.look()
    assert plant.life("first").state is State.DOWN
    assert ("died", "first", "HF-U032") in whats(plant)


def test_a_run_that_stops_starts_nobody_again(plant):
    dies(plant, "first")
    plant.board.stopping = True
    plant.later(100.0)
    assert plant.life("first").state is State.DOWN and plant.todo == []


def test_a_restart_under_way_when_the_run_stops_starts_nobody(plant):
    dies(plant, "first")
    plant.now_s += 1.0
    plant.crew.look()
    [work] = plant.todo
    plant.board.stopping = True
    work()
    assert plant.crew["first"].attempt == 0
    plant.todo.clear()


def test_a_defect_in_a_restart_ends_the_run_and_is_not_silent(plant):
    dies(plant, "first")
    plant.now_s += 1.0
    plant.crew.look()
    plant.crew._units["first"].abandon = lambda: 1 / 0
    plant.todo.pop(0)()
    assert isinstance(plant.board.error, ZeroDivisionError)


# ---- a lost host ----


def test_a_unit_whose_host_is_lost_makes_its_frames_again_from_its_backup(plant):
    plant.stored("first", "second")
    plant.make(6)
    before = plant.checksums("first")
    plant.lose("a")
    plant.later()
    assert plant.life("first").state is State.DOWN and plant.board.streams["first"].frames == {}
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING
    assert 0 < plant.crew["first"].committed <= 6
    plant.make(8)
    again = plant.checksums("first")
    assert all(again[n] == before[n] for n in again.keys() & before.keys())
    assert plant.board.streams["second"].sealed == 8
    assert [each for each in whats(plant) if each[2] == "HF-U034"] == [("died", "first", "HF-U034")]


def test_a_unit_that_has_lost_its_streams_stores_no_checkpoint_until_it_is_back(plant):
    """One that it had begun was stored without the frames that were to go along: restored from it, they were gone for good."""
    plant.stored("first")
    assert "first" in plant.guards.ages()
    plant.lose("a")
    plant.later()
    assert plant.board.streams["first"].frames == {} and "first" not in plant.guards.ages()
    plant.later(1.0)
    assert "first" in plant.guards.ages()


def test_a_checkpoint_is_not_stored_without_a_frame_that_is_still_needed(plant):
    """A host went away between the pin and the packing: the checkpoint said it held the frames, and did not."""
    plant.make(5, "first")
    Path(plant.board.streams["first"].frames[5].file).unlink()
    for n in range(6, 20):  # checkpoints are taken on the way
        if not plant.crew["first"].is_alive():
            break
        plant.make(n, "first")
    plant.until(lambda: not plant.crew["first"].is_alive())
    assert plant.crew["first"].error.code == "HF-O010"
    plant.later()
    plant.later(DOUBT_S)
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING
    plant.make(20)
    assert plant.board.streams["second"].sealed == 20


def test_a_reader_that_was_about_to_read_what_is_lost_is_renewed(plant):
    plant.stored("first")
    plant.make(5, "first")
    state = plant.board.units["second"]
    permit = plant.board.next_permit(state)
    plant.crew["second"].permit(permit)
    state.permitted = permit.n
    old = plant.crew["second"]
    plant.lose("a")
    plant.later()
    old.work(permit)
    assert plant.board.streams["second"].sealed == 4  # it was disowned
    plant.later(1.0)
    assert plant.crew["second"].attempt == 1 and plant.life("second").restarts == 0
    plant.make(6)
    assert plant.board.streams["second"].sealed == 6


def test_a_host_that_is_lost_again_while_its_unit_is_restored_is_one_death_more(plant):
    """The look of the run and the restart that fails over it both find the mark gone: it counts once."""
    plant.stored("first")
    plant.lose("a")
    plant.later()

    def lost_again():
        plant.on_make = lambda: None
        plant.lose("a")
        plant.crew.look()  # the run looks while the restart is under way

    plant.on_make = lost_again
    plant.later(1.0)
    assert plant.life("first").state is State.DOWN and plant.life("first").tries == 2
    assert [each for each in whats(plant) if each[2] == "HF-U034"] == [("died", "first", "HF-U034")] * 2
    plant.later(2.0)
    assert plant.life("first").state is State.RUNNING
    plant.make(6)


def test_a_restart_that_finds_its_host_gone_goes_through_the_same_door(plant):
    dies(plant, "first")

    def lost():
        plant.on_make = lambda: None
        plant.lose("a")

    plant.stored("first")
    plant.on_make = lost
    plant.later(1.0)
    assert plant.life("first").state is State.DOWN and plant.life("first").cause.error.code == "HF-U034"
    assert plant.homes.lost() == []
    plant.later(10.0)
    assert plant.life("first").state is State.RUNNING


def test_a_permit_that_meets_a_missing_folder_is_suspicious_until_the_mark_is_looked_for(plant):
    plant.stored("first")
    plant.crew["first"].give_in(damaged_state(plant.crew["first"].folder, FileNotFoundError("gone")))
    plant.later()
    assert plant.life("first").state is State.SUSPECT and plant.board.units["first"].condition == "RUNNING"
    plant.lose("a")
    plant.later()
    assert plant.life("first").cause.error.code == "HF-U034"
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING and plant.life("first").tries == 1


def test_damaged_state_comes_back_from_a_backup(plant):
    plant.stored("first")
    plant.crew["first"].give_in(damaged_state(plant.crew["first"].folder, FileNotFoundError("gone")))
    plant.later()
    plant.later(DOUBT_S)
    assert ("died", "first", "HF-U035") in whats(plant)
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING
    assert any("was put back to frame" in each.what for each in incidents_of(plant.folder.root))
    plant.make(6)


# ---- frames that cannot be read ----


def unreadable(plant: Plant, n: int) -> HoldfastError:
    path = Path(plant.board.streams["first"].frames[n].file)
    path.unlink()  # checkpoints have links to it, and those stay whole
    path.write_bytes(b"rot")
    with pytest.raises(HoldfastError) as met:
        read_frame(path)
    return met.value


def test_a_frame_that_a_unit_cannot_read_is_made_again(plant):
    plant.stored("first")
    plant.make(6, "first")
    plant.board.units["second"].permitted = 5
    dies(plant, "second", unreadable(plant, 5))
    assert plant.life("second").state is State.SUSPECT and plant.life("first").state is State.RUNNING
    plant.later(DOUBT_S)
    assert (plant.life("first").state, plant.life("second").state) == (State.DOWN, State.DOWN)
    plant.later(1.0)
    assert plant.life("second").restarts == 0
    plant.make(8)
    assert plant.board.streams["second"].sealed == 8
    assert ("died", "first", "HF-U036") in whats(plant)


def test_a_frame_that_a_sink_cannot_read_is_made_again(plant):
    plant.stored("second")
    plant.make(6)
    path = Path(plant.board.streams["second"].frames[5].file)
    path.unlink()
    with pytest.raises(HoldfastError) as met:
        read_frame(path)
    plant.board.found_unreadable("second", met.value)
    plant.later()
    assert plant.life("second").state is State.RUNNING
    plant.later(DOUBT_S)
    plant.board.found_unreadable("second", None)
    plant.later(1.0)
    plant.make(7)
    assert 5 in plant.board.streams["second"].frames and path.exists()


def test_a_frame_that_nobody_can_make_again_gives_its_reader_up(plant):
    plant.stored("first")
    plant.make(6, "first")
    bad = unreadable(plant, 5)
    dies(plant, "first", FrameDiffers("HF-F001", "FrameDiffers", "frame 7 came out otherwise.", effect="x"))
    plant.later(DOUBT_S)
    dies(plant, "second", bad)
    plant.later(DOUBT_S)
    assert plant.life("second").state is State.GIVEN_UP


# ---- rows on which an operator raises ----


def test_rows_that_are_left_out_bring_the_unit_back_at_once(plant):
    dies(plant, "first", raised())
    plant.later(1.0)
    plant.crew["first"].rows_found = True
    dies(plant, "first", raised())
    plant.later()
    assert plant.life("first").state is State.RUNNING
    assert ("rows left out", "first", "HF-O001") in whats(plant)


def test_what_no_rows_explain_gives_the_unit_up(plant):
    dies(plant, "first", raised())
    plant.later(1.0)
    plant.crew["first"].rows_found = False
    dies(plant, "first", raised())
    assert plant.life("first").state is State.GIVEN_UP


@pytest.mark.parametrize("met", [NotAgain(), killed()])
def test_a_search_that_comes_to_nothing_is_a_death_that_is_tried_again(plant, met):
    dies(plant, "first", raised())
    plant.later(1.0)
    plant.crew["first"].rows_found = met
    dies(plant, "first", raised())
    assert plant.life("first").state is State.DOWN and plant.life("first").tries == 2


# ---- units that may lose ----


@pytest.mark.parametrize("protection", [hf.snapshot(hf.frames(2)), hf.none], ids=["checkpoint", "none"])
def test_a_unit_that_may_lose_goes_on_behind_what_was_seen_of_it(tmp_path, protection):
    plant = begun(Plant(tmp_path, protection))
    plant.make(6, "first")
    plant.lose("a")
    plant.later()
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING
    # Frames 5 and 6 had been made and nobody had taken them: they are made again, or LOST.
    plant.make(8)
    assert plant.board.streams["second"].sealed == 8
    assert plant.crew["first"].committed == 8
    plant.end()


def test_frames_that_are_lost_with_a_host_are_sealed_as_such(tmp_path):
    """A number that never comes would stop every consumer."""
    plant = begun(Plant(tmp_path, hf.none))
    plant.make(6, "first")
    plant.board.streams["probes"].frames = {n: f for n, f in plant.board.streams["probes"].frames.items() if n > 6}
    plant.lose("a")
    plant.later()
    plant.later(1.0)
    assert plant.life("first").state is State.RUNNING
    kinds = {n: frame.kind for n, frame in plant.board.streams["first"].frames.items()}
    assert kinds == {5: Kind.LOST, 6: Kind.LOST}
    assert any("frames 5 to 6 are LOST" in each.what for each in incidents_of(plant.folder.root))
    plant.end()


# ---- a run that starts ----


def again(plant: Plant, tmp_path, protection=None) -> Plant:
    plant.end()
    return Plant(tmp_path, protection).begin()


def test_frames_that_are_missing_when_a_run_starts_are_made_again(plant, tmp_path):
    plant.stored("first", "second")
    plant.make(6)
    for path in (tmp_path / "b" / "streams" / "second").iterdir():
        path.unlink()
    next_run = again(plant, tmp_path)
    told = next_run.stand()
    assert any("sealed frames of unit 'second' are missing" in each for each in told)
    next_run.crew.start(None)
    next_run.make(8)
    assert next_run.board.streams["second"].sealed == 8
    next_run.end()
    plant.folder.acquire("plant")


def test_a_unit_that_may_lose_finds_its_place_when_a_run_starts(tmp_path):
    plant = begun(Plant(tmp_path, hf.none))
    plant.make(6, "first")
    plant.end()
    plant.lose("a")
    next_run = Plant(tmp_path, hf.none).begin()
    next_run.run()
    assert next_run.crew["first"].committed >= 4
    next_run.make(8)
    assert next_run.board.streams["second"].sealed == 8
    next_run.end()
