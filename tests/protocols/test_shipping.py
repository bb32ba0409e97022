"""Shipping: stored means enough copies, on disks that still have them."""

from holdfast.protocols.messages import Manifest, Stage, Stamp, StoreAnswered, Verdict
from holdfast.protocols.shipping import SendToStore, Shipped, Shipping, Superseded

ITEM = Manifest("join", 1, 1, 4, (), ("base", "delta4"))
NEXT = Manifest("join", 1, 2, 8, (), ("base", "delta8"))


def answer(store, item=ITEM, verdict=Verdict.STORED, stage=Stage.FINAL, lives=(), missing=()):
    return StoreAnswered(store, "join", 1, item.serial, stage, verdict, missing, lives)


def shipping(needed=2):
    return Shipping(Stamp("join", 0, 1), ("a", "b", "c"), needed)


def test_a_checkpoint_is_stored_when_enough_stores_say_so():
    """One copy may be lost with its host."""
    way = shipping()
    assert {o.store for o in way.ship(ITEM, Stage.FINAL)} == {"a", "b", "c"}
    assert way.answered(answer("a")) == []
    assert way.answered(answer("c")) == [Shipped(ITEM, Stage.FINAL)]


def test_only_new_files_travel():
    """The base is large and rarely changes."""
    way = shipping()
    way.ship(ITEM, Stage.FINAL)
    way.answered(answer("a"))
    way.answered(answer("b"))
    files = {o.store: o.request.files for o in way.ship(NEXT, Stage.FINAL)}
    assert files == {"a": ("delta8",), "b": ("delta8",), "c": ("base", "delta8")}


def test_missing_files_are_sent_again():
    """The store cleaned up, or they rotted."""
    way = shipping()
    way.ship(ITEM, Stage.FINAL)
    (said,) = way.answered(answer("a", verdict=Verdict.MISSING, missing=("base",)))
    assert isinstance(said, SendToStore)
    assert said.request.files == ITEM.files


def test_a_store_that_comes_back_gets_the_checkpoint_again():
    """What was sent to it may be lost, and with it a copy that was promised."""
    way = shipping()
    way.ship(ITEM, Stage.FINAL)
    assert [o.store for o in way.store_found("b")] == ["b"]
    way.answered(answer("a"))
    way.answered(answer("c"))
    assert [o.request.manifest for o in way.store_found("b")] == [ITEM]


def test_an_answer_given_before_a_folder_was_lost_does_not_count():
    """Two answers, one copy."""
    way = shipping()
    way.ship(ITEM, Stage.FINAL)
    way.answered(answer("a", lives=(("a", 0),)))
    said = way.answered(answer("b", lives=(("a", 1), ("b", 0))))
    assert [o.store for o in said] == ["a"]
    assert way.answered(answer("a", lives=(("a", 1),))) == [Shipped(ITEM, Stage.FINAL)]


def test_checkpoints_travel_one_after_the_other():
    """A later one must not be in force before an earlier one is reported."""
    way = shipping()
    way.ship(ITEM, Stage.FINAL)
    assert way.ship(NEXT, Stage.FINAL) == []
    way.answered(answer("a"))
    said = way.answered(answer("b"))
    assert said[0] == Shipped(ITEM, Stage.FINAL)
    assert all(o.request.manifest == NEXT for o in said[1:])


def test_a_commit_whose_first_phase_was_lost_is_sent_whole():
    """A store that restarted has forgotten what it had prepared."""
    way = shipping()
    way.ship(ITEM, Stage.PREPARE)
    for store in "ab":
        way.answered(answer(store, stage=Stage.PREPARE))
    way.ship(ITEM, Stage.COMMIT)
    (said,) = way.answered(answer("c", verdict=Verdict.MISSING, stage=Stage.COMMIT))
    assert said.request.stage is Stage.FINAL
    way.answered(answer("c"))
    assert way.answered(answer("a", stage=Stage.COMMIT)) == [Shipped(ITEM, Stage.COMMIT)]


def test_a_refused_epoch_means_somebody_else_runs_the_unit():
    """Going on would only make frames that nobody takes."""
    way = shipping()
    way.ship(ITEM, Stage.FINAL)
    assert way.answered(answer("a", verdict=Verdict.REFUSED)) == [Superseded()]
