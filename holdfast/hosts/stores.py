"""One backup store on a folder or an fsspec URL: drives `protocols.storing.BackupStore`.

Every request is worked on under the unit's lock, from what the disk says at that moment:
the machine of a unit is kept between requests and made anew from the disk when another
os_process changed something there, and after every failure. A folder's lock holds against
other os_processes (flock). A URL has no such lock. There an epoch is taken by creating an
object that must not exist, each epoch has a manifest of its own, and the register is read
once more after the manifest is written: either the writer sees the claim and answers
REFUSED, or the claimant, who reads after it has taken its epoch, sees the manifest.

A folder that vanished is not an empty one: `store.json` is written once and looked for
at each request (`StoreLost`). Opened anew with a higher life, the store takes part in a
unit only after it has learnt from its peers, and the unit's own folder says whether it has.

Layout and what is synced when: docs/protocols/backup.md, "On disk".
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import assert_never

from holdfast.failpoints import store_trouble
from holdfast.hosts.places import Place, StoreAway, place_at
from holdfast.hosts.remembered import Promised, Remembered
from holdfast.hosts.sealed import PLAIN, Damaged, NewerFormat, Seal, file_name, in_one_line, quoted
from holdfast.hosts.store_answers import Fetched, StoreLost, Trace
from holdfast.protocols.messages import (
    ClaimGranted,
    ClaimRefused,
    ClaimSent,
    Manifest,
    Stage,
    StoreAnswered,
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
    StoreEvent,
    SyncManifest,
    SyncRegister,
    VerifyFiles,
    WriteFiles,
)

__all__ = ["OpenStore", "StoreAway", "file_name", "who_know"]

_MARK = "store.json"
_LIVES = "store.lives"
_OF_EPOCH = re.compile(r"\d{12}\.json")
_DIGEST = re.compile(r"-k?[0-9a-f]{32}$|\+[0-9a-f]{32}$")


class _Overtaken(Exception):
    """On a URL: somebody else took an epoch while we worked. The request begins anew."""


def _nothing(name: str) -> bytes:
    raise LookupError(f"no content was given for file {name!r}")


def who_know(stores: Sequence[OpenStore], unit: str) -> int:
    """How many of these can teach; all of them while one does not answer, as it might be the one that knows."""
    try:
        return sum(store.trace(unit).joined for store in stores)
    except StoreAway:
        return len(stores)


class OpenStore:
    """One backup store: a folder, or any fsspec URL. Nothing is touched before the first request.

    `memory`: what was heard of it in earlier runs; without, it is believed as it is.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        life: int = 0,
        place: Place | None = None,
        seal: Seal = PLAIN,
        memory: Remembered | None = None,
    ) -> None:
        self._seal, self._memory = seal, memory
        self.name = name
        self.url = url
        self.life = life
        self._place: Place = place_at(url) if place is None else place
        self._id: str | None = None
        self._lost = False
        self._opening = threading.RLock()
        self._machines: dict[str, BackupStore] = {}
        self._read: dict[str, str] = {}  # path -> what the file system said of it when its hash was right

    def __repr__(self) -> str:
        return f"OpenStore({self.name!r}, {self.url!r}, life={self.life})"

    # ---- requests --------------------------------------------------------------------

    def ask(
        self, request: StoreSent | ClaimSent, content: Callable[[str], bytes] = _nothing
    ) -> StoreAnswered | ClaimGranted | ClaimRefused:
        """One request, carried out to its answer. `content(name)` gives the bytes of a file to write."""
        unit = request.manifest.unit if isinstance(request, StoreSent) else request.unit
        with self._at(unit) as folder:
            self._must_have_joined(unit, folder)
            try:
                while True:
                    try:
                        answer = self._carry_out(self._machine(unit, folder), folder, request, content)
                        break
                    except _Overtaken:
                        self._machines.pop(unit, None)
                self._check()
            except BaseException:
                self._machines.pop(unit, None)  # it waits for an event that will not come; the disk knows better
                raise
            self._remember(unit, answer)
            return answer

    def _remember(self, unit: str, answer: StoreAnswered | ClaimGranted | ClaimRefused) -> None:
        if self._memory is None:
            return
        if isinstance(answer, ClaimGranted):
            key = (0, 0) if answer.manifest is None else answer.manifest.key
            self._memory.note_promise(self._known_as, unit, Promised(self.life, answer.epoch, key))
        elif (
            isinstance(answer, StoreAnswered) and answer.verdict is Verdict.STORED and answer.stage is not Stage.PREPARE
        ):
            self._memory.note_promise(
                self._known_as, unit, Promised(self.life, answer.epoch, (answer.epoch, answer.serial))
            )

    @property
    def _known_as(self) -> str:
        return f"{self.name} {self.url}"  # under one name, another place is another store

    def fetch(self, unit: str, epoch: int, manifest: Manifest) -> Fetched:
        """Read a checkpoint for the instance with this epoch, every hash verified."""
        with self._at(unit) as folder:
            self._must_have_joined(unit, folder)
            kept = self._kept(unit, folder)
            held = kept.manifest
            if kept.epoch > epoch:
                return Fetched(False, held, passed=kept.epoch, why=f"epoch {kept.epoch} was granted")
            if held != manifest:
                have = "nothing" if held is None else f"checkpoint {held.serial} of epoch {held.epoch}"
                return Fetched(False, held, why=f"it holds {have}")
            contents: dict[str, bytes] = {}
            for name in manifest.files:
                content = self._place.read(self._file(folder, name))
                if content is None or not self._seal.is_whole(name, content):
                    wrong = "is missing" if content is None else f"is damaged ({len(content)} bytes)"
                    return Fetched(False, held, why=f"file {name} {wrong}")
                contents[name] = content
            self._check()
            return Fetched(True, held, contents)

    def trace(self, unit: str) -> Trace:
        with self._at(unit) as folder:
            joined = self._joined(folder)
            kept = self._kept(unit, folder, forgiving=not joined)
            return Trace(joined, kept.epoch, kept.manifest)

    def usage(self) -> dict[str, int]:
        """Bytes by unit."""
        with self._noticing():
            self._check()
            used = {}
            for folder in self._place.listed(""):
                if "." not in folder:
                    name = self._read_fact(f"{folder}/name.json")
                    used[name["unit"] if name else folder] = self._place.size(folder)
            return used

    def close(self) -> None:
        """Nothing is held open between requests; a store that is asked again reads its disk again."""
        self._machines.clear()
        self._read.clear()

    # ---- a store that lost its folder ------------------------------------------------

    def reopen(self) -> None:
        """After `StoreLost`: begin a new life, or the one that another thread or os_process has begun."""
        with self._opening:
            if self._lost:
                self._lost, self._id = False, None
                self.life += 1

    def join(self, peers: Sequence[OpenStore], units: Iterable[str], peers_needed: int) -> None:
        """Learn of each unit from so many peers what must not be forgotten; until then it takes no part.

        Units that it has joined and has traces of are passed over. With `peers_needed` 0
        it takes part again with what it has, which may be nothing.
        """
        for unit in units:
            with self._at(unit) as folder:
                if self._joined(folder) and self._kept(unit, folder).epoch > 0:
                    continue
                # First: a crash after half of the learning must not look like all of it.
                self._write_fact(f"{folder}/joined.json", {"life": self.life, "joined": False})
            learnt, failed = self._ask_peers(peers, unit, peers_needed)
            with self._at(unit) as folder:
                self._machines.pop(unit, None)
                kept = self._kept(unit, folder, forgiving=True)
                machine = BackupStore(self.name, [kept], peers_needed, self._lives().items())
                for knowledge in learnt:
                    for instruction in machine.handle(knowledge):
                        if isinstance(instruction, KeepKnowledge):
                            self._keep(folder, instruction)
                if not machine.joined(unit):
                    tried = "; ".join(failed) or "it has no other peers"
                    raise StoreAway(
                        f"{self._place}: it knows nothing of unit {unit!r}, though it may once have, and has learnt "
                        f"from {len(learnt)} of the {peers_needed} peers it must ask: {tried}"
                    )
                self._write_fact(f"{folder}/joined.json", {"life": self.life, "joined": True})

    def teach(self, pupil: str, life: int, unit: str) -> PeerKnowledge:
        """Note the pupil's new life, then tell it what is known here.

        A store that is known to have lost its folder teaches nobody before it has learnt.
        One that learns to be on the safe side does: two of them would wait for each other.
        """
        with self._at(unit) as folder:
            if self.life > 0:
                self._must_have_joined(unit, folder)
            if life > 0:
                for instruction in BackupStore(self.name, lives=self._lives().items()).handle(PeerJoins(pupil, life)):
                    if isinstance(instruction, KeepLife):
                        self._keep_life(instruction)
            kept = self._kept(unit, folder)
            return PeerKnowledge(self.name, unit, kept.epoch, kept.manifest)

    def _ask_peers(self, peers: Sequence[OpenStore], unit: str, enough: int) -> tuple[list[PeerKnowledge], list[str]]:
        """Without our own lock: two stores that learn from each other would wait for each other."""
        learnt: list[PeerKnowledge] = []
        failed = []
        for peer in peers if enough else ():
            try:
                if peer.name != self.name:
                    learnt.append(peer.teach(self.name, self.life, unit))
            except StoreAway as error:
                failed.append(f"{peer.name}: {error}")
        return learnt, failed

    def _keep(self, folder: str, knowledge: KeepKnowledge) -> None:
        if knowledge.epoch > 0:
            self._put_epoch(folder, knowledge.epoch)
        if knowledge.manifest is not None:
            self._put_manifest(folder, knowledge.manifest)

    def _keep_life(self, note: KeepLife) -> None:
        if self._lives().get(note.store, 0) < note.life:
            self._write_fact(f"{_LIVES}/{quoted(note.store)}.json", {"store": note.store, "life": note.life})

    # ---- one request -----------------------------------------------------------------

    def _carry_out(
        self, machine: BackupStore, folder: str, request: StoreSent | ClaimSent, content: Callable[[str], bytes]
    ) -> StoreAnswered | ClaimGranted | ClaimRefused:
        place = self._place
        # What is deleted in the end is among what was there at the beginning: on a URL,
        # files that came since may be those of an instance that has replaced ours.
        before = place.listed(f"{folder}/files")
        written: list[str] = []
        answer = None
        events: deque[StoreEvent] = deque([RequestReceived(request)])
        while events:
            for instruction in machine.handle(events.popleft()):
                match instruction:
                    case WriteFiles(files):
                        for name in files:
                            if not self._is_good(folder, name, before):
                                self._write_file(folder, name, content(name))
                                written.append(name)
                    case VerifyFiles(unit, files):
                        there = place.listed(f"{folder}/files")
                        self._believe(folder, written, there)
                        good = frozenset(name for name in files if self._is_good(folder, name, there))
                        events.append(FilesVerified(unit, good))
                    case SyncManifest(manifest, prepared):
                        self._check()
                        if prepared:
                            place.write(
                                f"{folder}/prepared.json",
                                self._seal.to_json(manifest, self._about(f"{folder}/prepared.json")),
                            )
                        else:
                            self._put_manifest(folder, manifest)
                            place.delete(f"{folder}/prepared.json")
                        if not place.exclusive and self._epoch(folder) > manifest.epoch:
                            raise _Overtaken
                        events.append(ManifestSynced(manifest.unit))
                    case SyncRegister(unit, epoch):
                        self._take_epoch(folder, epoch)
                        events.append(RegisterSynced(unit))
                    case DeleteFiles(_, keep):
                        self._delete(folder, before, keep)
                    case Reply(said):
                        answer = said
                    case KeepLife(_, _) as note:
                        self._keep_life(note)
                    case KeepKnowledge(_, _, _) as knowledge:
                        self._keep(folder, knowledge)
                    case _:
                        assert_never(instruction)
        if answer is None:
            raise RuntimeError(f"store {self.name} has no answer to {request!r}")
        return answer

    def _write_file(self, folder: str, name: str, content: bytes) -> None:
        if not self._seal.is_whole(name, content):
            raise ValueError(f"the content of file {name!r} does not fit the digest in its name")
        self._place.write(self._file(folder, name), content)

    def _believe(self, folder: str, written: list[str], there: dict[str, str]) -> None:
        """A URL's files were read back when they were written; they are read again when they look different.

        Files of a folder are read here for the first time, and once more when they have settled.
        """
        for name in written if not self._place.exclusive else ():
            path = self._file(folder, name)
            said = there.get(path.rpartition("/")[2])
            if said:
                self._read[path] = said

    def _is_good(self, folder: str, name: str, there: dict[str, str]) -> bool:
        path = self._file(folder, name)
        said = there.get(path.rpartition("/")[2])
        if said is None:
            return False
        if said and self._read.get(path) == said:
            return True
        content = self._place.read(path)
        if content is None or not self._seal.is_whole(name, content):
            return False
        if said:
            self._read[path] = said
        return True

    def _delete(self, folder: str, before: dict[str, str], keep: frozenset[str]) -> None:
        kept = {quoted(name, dots=True) for name in keep}
        for name in before:
            if name not in kept and _DIGEST.search(name):  # what is none of our files is not ours to delete
                self._place.delete(f"{folder}/files/{name}")
                self._read.pop(f"{folder}/files/{name}", None)
        if not self._place.exclusive:
            for old in self._manifests(folder)[:-1]:
                self._place.delete(f"{folder}/manifests/{old}")

    def _file(self, folder: str, name: str) -> str:
        return f"{folder}/files/{quoted(name, dots=True)}"

    # ---- what is on the disk ---------------------------------------------------------

    def _machine(self, unit: str, folder: str) -> BackupStore:
        """The unit's machine, made anew if it does not know what the disk says."""
        kept = self._kept(unit, folder)
        machine = self._machines.get(unit)
        if (
            machine is None
            or kept.epoch > machine.registers[unit].current
            or kept.manifest != machine.manifests.get(unit)
            or kept.prepared != machine.prepared.get(unit)
        ):
            there = self._place.listed(f"{folder}/files")
            prepared = kept.prepared
            if prepared is not None and not all(self._is_good(folder, name, there) for name in prepared.files):
                self._place.delete(f"{folder}/prepared.json")
                kept = Kept(unit, kept.epoch, kept.manifest)
            machine = self._machines[unit] = BackupStore(self.name, [kept], lives=self._lives().items())
        for peer, life in self._lives().items():
            if machine.lives.get(peer, 0) < life:
                machine.handle(PeerJoins(peer, life))
        return machine

    def _kept(self, unit: str, folder: str, *, forgiving: bool = False) -> Kept:
        """`forgiving`: what is damaged is not there; for a store that is about to learn."""
        manifest = self._manifest(folder, forgiving)
        epoch = max(self._epoch(folder, forgiving), manifest.epoch if manifest is not None else 0)
        try:
            content = self._place.read(f"{folder}/prepared.json")
            about = self._about(f"{folder}/prepared.json")
            prepared = self._seal.from_json(content, about) if content is not None else None
        except Damaged:
            prepared = None
        except NewerFormat as error:
            raise StoreAway(f"{self._place}/{folder}/prepared.json: {error}") from error
        if manifest is not None and manifest.unit != unit:
            why = in_one_line("HF-R060", "CheckpointRefused", f"it holds a checkpoint of unit {manifest.unit!r}")
            raise self._noticed(f"{folder}: {why}")
        promised = self._memory.promised(self._known_as, unit) if self._memory is not None and not forgiving else None
        if promised is not None and promised.life == self.life and promised.is_forgotten_by(epoch, manifest):
            have = "none" if manifest is None else f"checkpoint {manifest.serial} of epoch {manifest.epoch}"
            had = f"epoch {promised.epoch} and checkpoint {promised.key[1]} of epoch {promised.key[0]}"
            why = f"it has gone back to an older copy of itself: it answered with {had}, and holds epoch {epoch} and {have}"
            raise self._noticed(f"{folder}: {in_one_line('HF-R062', 'BackupOlder', why)}")
        if prepared is not None and (
            prepared.unit != unit or prepared.epoch < epoch or (manifest is not None and prepared.key <= manifest.key)
        ):
            prepared = None
        return Kept(unit, epoch, manifest, prepared)

    def _epoch(self, folder: str, forgiving: bool = False) -> int:
        if self._place.exclusive:
            fact = self._read_fact(f"{folder}/epoch", forgiving)
            return fact["epoch"] if fact else 0
        taken = [int(name) for name in self._place.listed(f"{folder}/epochs") if name.isdecimal()]
        taken += [int(name.partition(".")[0]) for name in self._manifests(folder)]
        return max(taken, default=0)

    def _manifests(self, folder: str) -> list[str]:
        """Of a URL: one object for each epoch, the newest last; what else lies there is not ours."""
        return sorted(name for name in self._place.listed(f"{folder}/manifests") if _OF_EPOCH.fullmatch(name))

    def _put_epoch(self, folder: str, epoch: int) -> None:
        if self._place.exclusive:
            self._write_fact(f"{folder}/epoch", {"epoch": epoch})
        else:
            self._place.create(f"{folder}/epochs/{epoch:012}", b"")

    def _take_epoch(self, folder: str, epoch: int) -> None:
        if self._place.exclusive:
            self._put_epoch(folder, epoch)
            return
        before = self._epoch(folder)
        if not self._place.create(f"{folder}/epochs/{epoch:012}", b""):
            raise _Overtaken
        # Whoever came between is seen now: a number above ours, or one that `before` does not tell.
        others = {int(name) for name in self._place.listed(f"{folder}/epochs") if name.isdecimal()} - {epoch}
        if max(others, default=0) > before or self._epoch(folder) > epoch:
            raise _Overtaken

    def _manifest(self, folder: str, forgiving: bool) -> Manifest | None:
        path = f"{folder}/manifest.json"
        if not self._place.exclusive:
            names = self._manifests(folder)
            path = f"{folder}/manifests/{names[-1]}" if names else path
        content = self._place.read(path)
        try:
            return self._seal.from_json(content, self._about(path)) if content is not None else None
        except Damaged as error:
            if forgiving:
                return None
            raise self._noticed(f"{path}: {error}") from error
        except NewerFormat as error:
            raise StoreAway(f"{self._place}/{path}: {error}") from error

    def _put_manifest(self, folder: str, manifest: Manifest) -> None:
        name = "manifest.json" if self._place.exclusive else f"manifests/{manifest.epoch:012}.json"
        self._place.write(f"{folder}/{name}", self._seal.to_json(manifest, self._about(f"{folder}/{name}")))

    def _about(self, path: str) -> str:
        """A fact is one of this store, at this place."""
        return f"{self.name}/{path}"

    def _joined(self, folder: str) -> bool:
        fact = self._read_fact(f"{folder}/joined.json", forgiving=True)
        if fact is None:
            return self.life == 0 and self._place.read(f"{folder}/joined.json") is None
        return fact["joined"] and fact["life"] == self.life

    def _must_have_joined(self, unit: str, folder: str) -> None:
        if not self._joined(folder):
            raise StoreAway(f"{self._place}: it lost its folder and has not yet learnt of unit {unit!r} from its peers")

    def _lives(self) -> dict[str, int]:
        lives = {self.name: self.life}
        for name in self._place.listed(_LIVES):
            if name.endswith(".json"):
                fact = self._read_fact(f"{_LIVES}/{name}")
                if fact is not None:
                    lives[fact["store"]] = max(lives.get(fact["store"], 0), fact["life"])
        return lives

    def _read_fact(self, path: str, forgiving: bool = False) -> dict | None:
        content = self._place.read(path)
        try:
            return self._seal.unsealed(content, self._about(path)) if content is not None else None
        except Damaged as error:
            if forgiving:
                return None
            raise self._noticed(f"{path}: {error}") from error
        except NewerFormat as error:
            raise StoreAway(f"{self._place}/{path}: {error}") from error

    def _write_fact(self, path: str, body: dict) -> None:
        self._place.write(path, self._seal.sealed(body, self._about(path)))

    # ---- the folder itself -----------------------------------------------------------

    @contextlib.contextmanager
    def _at(self, unit: str) -> Iterator[str]:
        """The folder of a unit, locked, in a store that is the one we opened."""
        folder = quoted(unit)
        self._meet_fault()
        with self._noticing():
            self._check()
            self._place.make(folder)
            for part in ("files",) if self._place.exclusive else ("files", "epochs", "manifests"):
                self._place.make(f"{folder}/{part}")
            with self._place.locked(folder):
                self._check()
                if self._place.read(f"{folder}/name.json") is None:
                    self._write_fact(f"{folder}/name.json", {"unit": unit})
                yield folder

    def _meet_fault(self) -> None:
        """Slow, or away, on purpose: `failpoints`."""
        if (seconds := store_trouble(self.name)) < 0:
            raise StoreAway(f"{self._place}: away on purpose")
        if seconds:
            time.sleep(seconds)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """A request that failed may have failed because the whole folder went away under it."""
        try:
            yield
        except StoreLost:
            raise
        except StoreAway:
            if self._id is not None:
                self._check()
            raise

    def _check(self) -> None:
        """Open the store at its first use; later, see that it is still the one we opened."""
        with self._opening:
            if self._lost:
                raise StoreLost(f"{self._place}: its folder was lost and it has not been opened anew")
            if self._id is None:
                self._open()
                return
            opened = self._id
        mark = self._read_fact(_MARK)
        if mark is None or mark["id"] != opened:
            with self._opening:
                if self._id != opened:
                    raise StoreAway(f"{self._place}: it has just been opened anew")
                raise self._noticed(f"{_MARK} is " + ("gone" if mark is None else "another one"))

    def _open(self) -> None:
        self._machines.clear()
        self._read.clear()
        self._place.begin()
        self._place.make(_LIVES)
        with self._place.locked(_LIVES):
            # Opened for a new life, it replaces a mark that is damaged; else that is a loss, to be noticed.
            mark = self._read_fact(_MARK, forgiving=self.life > 0)
            if mark is not None and mark["store"] != self.name:
                raise StoreAway(
                    f"{self._place}: it belongs to store {mark['store']!r}; each store needs a place of its own"
                )
            if mark is None or mark["life"] < self.life:
                mark = {"store": self.name, "life": self.life, "id": secrets.token_hex(16)}
                self._write_fact(_MARK, mark)
            self.life, self._id = mark["life"], mark["id"]

    def _noticed(self, why: str) -> StoreLost:
        """From here on every request is refused until `reopen`."""
        self._lost = True
        self._machines.clear()
        return StoreLost(f"{self._place}: {why}")
