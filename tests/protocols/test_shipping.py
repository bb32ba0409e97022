"""Shipping: stored means enough copies, on disks that still have them."""

from dataclasses import replace

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


def stored_by_two(way, item=ITEM, stage=Stage.FINAL):
    way.ship(item, stage)
    way.answered(answer("a", item, stage=stage))
    return way.answered(answer("b", item, stage=stage))


def sent(said):
    return [
        (o.store, o.request.manifest.serial, o.request.stage, o.request.files)
        for o in said
        if isinstance(o, SendToStore)
    ]


def test_what_travels_is_the_oldest_that_is_not_stored():
    """Faults and status are judged by it."""
    way = shipping()
    assert way.travelling is None
    way.ship(ITEM, Stage.FINAL)
    way.ship(NEXT, Stage.FINAL)
    assert way.travelling == ITEM
    way.answered(answer("a"))
    said = way.answered(answer("b"))
    assert [item for _, item, *_ in sent(said)] == [2, 2, 2]
    assert way.travelling == NEXT


def test_checkpoints_travel_in_the_order_they_were_taken():
    """A store takes an older one behind a newer for a duplicate."""
    way = shipping()
    third = Manifest("join", 1, 3, 12, (), ("base", "delta12"))
    for item in (ITEM, NEXT, third):
        way.ship(item, Stage.FINAL)
    assert [item for _, item, *_ in sent(way.store_found("c"))] == [1]
    way.answered(answer("a"))
    assert [item for _, item, *_ in sent(way.answered(answer("b")))] == [2, 2, 2]


def test_answers_about_another_checkpoint_or_of_another_epoch_do_not_count():
    """They are late, and say nothing about the one on its way."""
    way = shipping()
    assert way.answered(answer("a")) == []
    way.ship(NEXT, Stage.FINAL)
    way.answered(answer("a", ITEM))
    way.answered(replace(answer("a", NEXT), epoch=2))
    assert way.answered(answer("b", NEXT)) == []
    assert way.answered(answer("c", NEXT)) == [Shipped(NEXT, Stage.FINAL)]


def test_a_third_answer_makes_nothing_stored_twice():
    """The protection would take the second for a checkpoint that was not on its way."""
    way = shipping()
    stored_by_two(way)
    assert way.answered(answer("c")) == []
    assert sent(way.ship(NEXT, Stage.FINAL)) == [(s, 2, Stage.FINAL, ("delta8",)) for s in "abc"]
    assert way.answered(answer("a", NEXT)) == []


def test_a_store_that_lacks_files_of_the_last_checkpoint_gets_it_whole_and_final():
    """Nothing else is on its way that would bring it."""
    way = shipping()
    stored_by_two(way)
    said = way.answered(answer("c", verdict=Verdict.MISSING, missing=("base",)))
    assert sent(said) == [("c", 1, Stage.FINAL, ITEM.files)]


def test_files_missed_in_phase_one_are_sent_again_in_phase_one():
    """As a final one it would replace the former checkpoint before the consumers are safe."""
    way = shipping()
    way.ship(ITEM, Stage.PREPARE)
    said = way.answered(answer("a", verdict=Verdict.MISSING, stage=Stage.PREPARE, missing=("base",)))
    assert sent(said) == [("a", 1, Stage.PREPARE, ITEM.files)]


def test_a_phase_is_over_by_its_own_answers_or_by_a_final_copy():
    """An answer to phase one that comes twice is no commit, and a final copy is no preparation."""
    way = shipping()
    stored_by_two(way, stage=Stage.PREPARE)
    assert sent(way.ship(ITEM, Stage.COMMIT)) == [(s, 1, Stage.COMMIT, ()) for s in "abc"]
    assert way.answered(answer("a", stage=Stage.PREPARE)) == []
    assert way.answered(answer("b", stage=Stage.PREPARE)) == []
    assert way.answered(answer("a", stage=Stage.FINAL)) == []
    assert way.answered(answer("b", stage=Stage.COMMIT)) == [Shipped(ITEM, Stage.COMMIT)]
    way.ship(NEXT, Stage.PREPARE)
    way.answered(answer("a", NEXT, stage=Stage.FINAL))
    assert way.answered(answer("b", NEXT, stage=Stage.FINAL)) == []


def test_a_commit_carries_no_file_also_to_a_store_that_has_none():
    """Phase two is one short message; the store says what it lacks."""
    way = shipping()
    way.ship(ITEM, Stage.COMMIT)
    assert sent(way.store_found("c")) == [("c", 1, Stage.COMMIT, ())]


def test_a_store_that_names_no_lives_is_in_its_first():
    """A peer that knows of its second says that the answer is void."""
    way = shipping(needed=2)
    way.ship(ITEM, Stage.FINAL)
    way.answered(answer("a"))
    assert sent(way.answered(answer("b", lives=(("a", 1), ("b", 0))))) == [("a", 1, Stage.FINAL, ITEM.files)]


def test_a_life_that_one_peer_knows_of_is_not_undone_by_one_that_does_not():
    """The store lost its folder, whoever has heard of it."""
    way = shipping(needed=3)
    way.ship(ITEM, Stage.FINAL)
    way.answered(answer("b", lives=(("a", 1),)))
    way.answered(answer("c", lives=(("a", 0),)))
    assert sent(way.answered(answer("a", lives=(("a", 0),)))) == [("a", 1, Stage.FINAL, ITEM.files)]


def test_a_store_that_lost_its_folder_or_came_back_is_sent_every_file():
    """What it was known to have may be gone."""
    way = shipping()
    stored_by_two(way)
    way.ship(NEXT, Stage.FINAL)
    assert sent(way.store_found("a")) == [("a", 2, Stage.FINAL, NEXT.files)]
    way.answered(answer("a", NEXT))
    assert sent(way.answered(answer("b", NEXT, lives=(("a", 1),)))) == [("a", 2, Stage.FINAL, NEXT.files)]


def test_what_is_only_prepared_is_not_brought_to_a_store_that_comes_back():
    """Sent as final it would be in force before its consumers are safe."""
    way = shipping()
    assert way.store_found("c") == []
    stored_by_two(way, stage=Stage.PREPARE)
    assert way.store_found("c") == []
    stored_by_two(way, stage=Stage.COMMIT)
    assert sent(way.store_found("c")) == [("c", 1, Stage.FINAL, ITEM.files)]
