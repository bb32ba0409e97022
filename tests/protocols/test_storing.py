"""A backup store: files before manifest, one request at a time, lower epochs refused."""

import pytest

from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import (
    ClaimGranted,
    ClaimRefused,
    ClaimSent,
    Manifest,
    Stage,
    Stamp,
    StoreSent,
    Verdict,
)
from holdfast.protocols.storing import (
    BackupStore,
    DeleteFiles,
    FilesVerified,
    KeepKnowledge,
    KeepLife,
    Kept,
    ManifestSynced,
    PeerJoins,
    PeerKnowledge,
    RegisterSynced,
    Reply,
    RequestReceived,
    SyncManifest,
    SyncRegister,
    VerifyFiles,
    WriteFiles,
)


def manifest(frame, epoch=1, serial=1):
    return Manifest("join", epoch, serial, frame, (), ("base", f"delta{frame}"))


def request(item, stage=Stage.FINAL):
    return RequestReceived(StoreSent(Stamp("join", 0, item.epoch), item, stage, item.files))


def good(item):
    return FilesVerified("join", frozenset(item.files))


def store_now(store, item):
    store.handle(request(item))
    store.handle(good(item))
    return store.handle(ManifestSynced("join"))


def verdicts(said):
    return [o.answer.verdict for o in said if isinstance(o, Reply)]


def test_the_manifest_is_written_after_its_files_are_synced():
    """A crash in between must leave the former checkpoint whole."""
    store, item = BackupStore("s"), manifest(4)
    assert store.handle(request(item)) == [
        WriteFiles(item.files),
        VerifyFiles("join", item.files),
    ]
    assert store.handle(good(item)) == [SyncManifest(item, prepared=False)]
    assert verdicts(store.handle(ManifestSynced("join"))) == [Verdict.STORED]


def test_old_files_go_only_after_the_new_manifest_is_synced():
    """Until then the former checkpoint is the one in force."""
    store = BackupStore("s")
    store_now(store, manifest(4))
    newer = manifest(8, serial=2)
    said = store.handle(request(newer)) + store.handle(good(newer))
    assert not [o for o in said if isinstance(o, DeleteFiles)]
    said = store.handle(ManifestSynced("join"))
    assert said[0] == DeleteFiles("join", frozenset(newer.files))


def test_a_file_that_vanished_or_rotted_must_travel_again():
    """The sender believes it is here; only the store knows."""
    store, item = BackupStore("s"), manifest(4)
    store.handle(request(item))
    said = store.handle(FilesVerified("join", frozenset({"base"})))
    assert verdicts(said) == [Verdict.MISSING]
    assert said[0].answer.missing == ("delta4",)


def test_a_claim_waits_for_the_checkpoint_that_is_being_written():
    """Answered earlier, the claimant would start before a checkpoint that gets acked."""
    store, item = BackupStore("s", [Kept("join", 1, None)]), manifest(4)
    store.handle(request(item))
    assert store.handle(RequestReceived(ClaimSent("join", 2, "h"))) == []
    store.handle(good(item))
    said = store.handle(ManifestSynced("join"))
    assert SyncRegister("join", 2) in said
    granted = store.handle(RegisterSynced("join"))
    assert granted == [Reply(ClaimGranted("s", "join", 2, "h", 1, item))]


def test_a_replaced_instance_cannot_store():
    """It would put a checkpoint in force whose inputs its successor still needs."""
    store = BackupStore("s", [Kept("join", 2, None)])
    assert verdicts(store.handle(request(manifest(9, epoch=1)))) == [Verdict.REFUSED]
    assert store.manifests == {}


def test_an_epoch_is_granted_once():
    """Two claimants may ask for the same number."""
    store = BackupStore("s", [Kept("join", 1, None)])
    store.handle(RequestReceived(ClaimSent("join", 2, "h")))
    store.handle(RegisterSynced("join"))
    said = store.handle(RequestReceived(ClaimSent("join", 2, "other")))
    assert said == [Reply(ClaimRefused("s", "join", 2, "other", 2))]


def test_a_prepared_backup_does_not_replace_the_one_in_force():
    """Its unit may die before its consumers have theirs."""
    store = BackupStore("s")
    store_now(store, manifest(4))
    newer = manifest(8, serial=2)
    store.handle(request(newer, Stage.PREPARE))
    assert store.handle(good(newer)) == [SyncManifest(newer, prepared=True)]
    store.handle(ManifestSynced("join"))
    assert store.manifests["join"] == manifest(4)
    assert store.handle(request(newer, Stage.COMMIT)) == [SyncManifest(newer, prepared=False)]
    store.handle(ManifestSynced("join"))
    assert store.manifests["join"] == newer


def test_a_claim_drops_what_was_prepared():
    """The successor may prepare another backup under the same serial."""
    store, item = BackupStore("s", [Kept("join", 1, None)]), manifest(8)
    store.handle(request(item, Stage.PREPARE))
    store.handle(good(item))
    store.handle(ManifestSynced("join"))
    store.handle(RequestReceived(ClaimSent("join", 2, "h")))
    store.handle(RegisterSynced("join"))
    assert store.prepared == {}


def test_a_store_that_lost_its_folder_learns_before_it_takes_part():
    """With an empty register it would grant an epoch again and hide a checkpoint."""
    store = BackupStore("s", peers_needed=2)
    assert store.handle(RequestReceived(ClaimSent("join", 2, "h"))) == []
    store.handle(PeerKnowledge("t", "join", 5, manifest(4)))
    assert not store.joined("join")
    store.handle(PeerKnowledge("u", "join", 3, None))
    assert store.joined("join")
    said = store.handle(RequestReceived(ClaimSent("join", 5, "h")))
    assert said == [Reply(ClaimRefused("s", "join", 5, "h", 5))]
    assert store.manifests["join"] == manifest(4)


def test_peers_name_the_new_life_of_a_store_that_lost_its_folder():
    """An answer it gave before says nothing about what it holds now."""
    store = BackupStore("s")
    store.handle(PeerJoins("t", 1))
    said = store_now(store, manifest(4))
    assert dict(said[1].answer.lives) == {"s": 0, "t": 1}


def test_a_store_that_finds_a_prepared_backup_commits_it():
    """It was whole when the store was opened; its files need not travel again."""
    item = manifest(8)
    store = BackupStore("s", [Kept("join", 1, None, prepared=item)])
    assert store.handle(request(item, Stage.COMMIT)) == [SyncManifest(item, prepared=False)]


def test_a_manifest_known_from_peers_is_not_called_stored_without_its_files():
    """The unit would count a copy that nobody can start from."""
    store, item = BackupStore("s", peers_needed=1), manifest(4)
    store.handle(PeerKnowledge("t", "join", 1, item))
    assert store.handle(request(item, Stage.COMMIT)) == [VerifyFiles("join", item.files)]
    assert verdicts(store.handle(FilesVerified("join", frozenset()))) == [Verdict.MISSING]


def claim(epoch):
    return RequestReceived(ClaimSent("join", epoch, f"claimant{epoch}"))


def replies(said):
    """Claims by number, stores by verdict."""
    return [
        getattr(o.answer, "verdict", (type(o.answer).__name__, o.answer.epoch)) for o in said if isinstance(o, Reply)
    ]


def test_requests_of_a_unit_are_worked_on_in_the_order_they_came():
    """The lock is the order: what comes after a claim must find it granted, what came before must not."""
    store = BackupStore("a")
    assert store.handle(claim(3)) == [SyncRegister("join", 3)]
    late = manifest(4, epoch=2)
    for each in (claim(2), request(late), claim(5), claim(4)):
        assert store.handle(each) == []
    said = store.handle(RegisterSynced("join"))
    assert replies(said) == [("ClaimGranted", 3), ("ClaimRefused", 2), Verdict.REFUSED]
    assert said[-1] == SyncRegister("join", 5)
    assert replies(store.handle(RegisterSynced("join"))) == [("ClaimGranted", 5), ("ClaimRefused", 4)]


def test_an_instance_is_heard_of_through_its_checkpoint():
    """A claim that left this store out raised its number elsewhere; one below it must not be granted here."""
    store = BackupStore("a")
    store_now(store, manifest(4, epoch=3))
    assert replies(store.handle(claim(3))) == [("ClaimRefused", 3)]


def test_what_a_store_kept_over_a_restart_is_what_a_claim_finds():
    """A claim that misses it starts before its acks."""
    item = manifest(4)
    store = BackupStore("a", [Kept("join", 1, item)], lives=[("a", 2), ("b", 1)])
    assert store.lives == {"a": 2, "b": 1}
    store.handle(claim(2))
    (granted,) = store.handle(RegisterSynced("join"))
    assert (granted.answer.manifest, granted.answer.before) == (item, 1)


def test_a_restarted_store_with_nothing_prepared_prepares_and_keeps_both():
    """Phase one stands beside the former checkpoint until phase two."""
    old, new = manifest(4), manifest(8, serial=2)
    store = BackupStore("a", [Kept("join", 1, old)])
    store.handle(request(new, Stage.PREPARE))
    assert store.handle(good(new)) == [SyncManifest(new, prepared=True)]
    said = store.handle(ManifestSynced("join"))
    assert said[0] == DeleteFiles("join", frozenset({*old.files, *new.files}))
    final = manifest(12, serial=3)
    assert store_now(store, final)[0] == DeleteFiles("join", frozenset(final.files))


def test_a_commit_of_what_is_not_here_asks_for_all_of_it():
    """Phase one never came, or the store restarted since: a refusal would stop the unit, silence would hold it."""
    store = BackupStore("a", [Kept("join", 1, manifest(4))])
    new = manifest(8, serial=2)
    (said,) = store.handle(request(new, Stage.COMMIT))
    assert (said.answer.verdict, said.answer.missing) == (Verdict.MISSING, new.files)
    assert store.handle(claim(2)) == [SyncRegister("join", 2)]


@pytest.mark.parametrize("item", [manifest(8, serial=2), manifest(4)])
def test_a_checkpoint_that_is_covered_is_stored_and_changes_nothing(item):
    """Requests come twice and overtake each other; the newer one stays in force."""
    store = BackupStore("a")
    store_now(store, manifest(8, serial=2))
    store.handle(request(item))
    said = store.handle(good(item))
    assert verdicts(said) == [Verdict.STORED]
    assert len(said) == 1
    assert store.manifests["join"].serial == 2


def test_an_answer_of_the_disk_to_another_request_stops_the_store():
    """It would call stored what was never verified, or grant what was never synced."""
    store = BackupStore("a")
    store.handle(request(manifest(4)))
    with pytest.raises(BrokenInvariant, match="while storing"):
        store.handle(RegisterSynced("join"))
    claimed = BackupStore("b")
    claimed.handle(claim(2))
    with pytest.raises(BrokenInvariant, match="works on a claim"):
        claimed.handle(ManifestSynced("join"))


def test_the_highest_life_of_a_peer_is_kept():
    """An older one, heard late, would let an answer of a lost folder count."""
    store = BackupStore("a")
    assert store.handle(PeerJoins("b", 2)) == [KeepLife("b", 2)]
    assert store.handle(PeerJoins("b", 1)) == [KeepLife("b", 2)]


def test_the_newest_of_what_peers_know_is_learnt_and_written_down():
    """An older manifest would be found by a claim; one that is not on disk is lost with the next crash."""
    old, new = manifest(4), manifest(8, serial=2)
    store = BackupStore("a", peers_needed=2)
    assert store.handle(PeerKnowledge("b", "join", 3, new)) == [KeepKnowledge("join", 3, new)]
    assert store.handle(PeerKnowledge("c", "join", 2, old)) == [KeepKnowledge("join", 3, new)]
    assert store.handle(PeerKnowledge("d", "join", 9, None)) == []
    other = BackupStore("a", peers_needed=2)
    other.handle(PeerKnowledge("b", "join", 2, old))
    assert other.handle(PeerKnowledge("c", "join", 3, new)) == [KeepKnowledge("join", 3, new)]
