"""A backup store: files before manifest, one request at a time, lower epochs refused."""

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
