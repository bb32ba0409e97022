"""To whom a ledger belongs: one state folder, by its identity, and one line of its starts.

Every start of a state folder has an id, written into the folder (`starts`) before any
ledger sees it; a ledger keeps the id of the start that claimed it last. So a ledger whose
folder is another one is recognised, and so is a folder that is a copy, or was put back
from an older one: it does not know the start that wrote last. How often somebody tries
changes nothing of that. Frame numbers of two folders mean different frames, so who takes
a ledger over (`holdfast adopt-table`) gets numbers above those that are there
(docs/decisions/0011-a-ledger-belongs-to-one-folder.md).

`judge_owner` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.errors import SinkError

__all__ = [
    "Claim",
    "Owner",
    "Taken",
    "Taking",
    "at_work",
    "current_owner",
    "current_sink",
    "judge_owner",
    "ledger_ahead",
    "other_folder",
    "taken",
]


@dataclass(frozen=True, slots=True)
class Owner:
    """A start of a state folder, as it comes to a ledger."""

    folder: str  # its identity
    start_id: str
    starts: frozenset[str] = frozenset()  # ids of all its starts, this one's too
    sinks: frozenset[str] = frozenset()  # sinks it has written to before
    place: str = ""  # where it lies, for words
    may_be_torn: bool = False  # the machine went down since its start before: what was not synced may be there in part


@dataclass(frozen=True, slots=True)
class Claim:
    """What a ledger says of its owner."""

    epoch: int
    frame: int  # the highest number in the target
    target: str = ""
    folder: str = ""  # '': of a version that did not say
    start_id: str = ""
    base: int = 0  # number in the target = number in the folder + base

    @property
    def last(self) -> int:
        """The highest frame of the owning folder that is written, in the folder's own numbers."""
        return max(0, self.frame - self.base)


@dataclass(frozen=True, slots=True)
class Taking:
    """What `holdfast adopt-table` wants of a target."""

    #: Given what the ledger knows of a frame (its checksum, or None), the last frame of the folder that is in the target.
    common: Callable[[Callable[[int], str | None]], int]
    renumber: bool = False  # although the folder is the ledger's own


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of it."""

    of: str  # the state folder it belonged to before
    last: int  # the highest number in the target
    base: int  # a frame n of the folder is written under n + base
    written: int  # the last frame of the folder that counts as written
    accepted: tuple[str, ...] = ()  # what was different in the target and is taken as it is


def taken(
    claim: Claim, owner: Owner, taking: Taking, *, is_known: bool, newest: int, checksum: Callable[[int], str | None]
) -> Taken:
    """Under which numbers the folder goes on; `newest`: the highest number of a row in the target."""
    last = max(claim.frame, newest)
    if claim.folder != owner.folder and not (claim.folder == "" and is_known):
        written = 0
    elif claim.start_id in ("", owner.start_id, *owner.starts) and not taking.renumber:
        written = claim.last
    else:
        written = min(claim.last, taking.common(lambda n: checksum(n + claim.base)))
    return Taken(claim.folder, last, last - written, written)


def judge_owner(claim: Claim, owner: Owner, *, is_known: bool, where: str) -> None:
    """Refuse who is not the ledger's own. `is_known`: the folder has written to it before, as far as it knows itself."""
    if claim.folder == "":
        # Made before ledgers said whose they are. A folder that never wrote here did not write what is there.
        if claim.frame and not is_known:
            raise other_folder(claim, owner, where)
    elif claim.folder != owner.folder:
        raise other_folder(claim, owner, where)
    elif claim.start_id and claim.start_id != owner.start_id and claim.start_id not in owner.starts:
        raise _not_the_latest(claim, owner, where)


def other_folder(claim: Claim, owner: Owner, where: str) -> SinkError:
    whose = f"state folder {claim.folder}" if claim.folder else "a state folder that was here before"
    return SinkError(
        "HF-K030",
        "LedgerOfAnother",
        f"the target belongs to another state folder, which wrote frames up to {claim.frame}.",
        where=where,
        why=f"its ledger was written by {whose}; this one is {owner.folder}"
        + (f" ({owner.place})" if owner.place else "")
        + ": deleted and made anew, or another copy of the process; its frame 1 is not the frame 1 that is there",
        effect="nothing was written and nothing was changed, however often it is tried; frames wait sealed",
        do=_ways("put the old state folder back"),
    )


def _not_the_latest(claim: Claim, owner: Owner, where: str) -> SinkError:
    return SinkError(
        "HF-K031",
        "FolderNotLatest",
        f"the target was written, up to frame {claim.last}, by a start that this state folder does not know.",
        where=where,
        why=f"state folder {owner.folder}{f' ({owner.place})' * bool(owner.place)} is a copy, or was put back from an"
        " older copy, and another one has run since",
        effect="nothing was written and nothing was changed, however often it is tried; frames wait sealed",
        do=_ways("use the newer copy of the state folder"),
    )


def ledger_ahead(last: int, made: int, kept: int, where: str) -> SinkError:
    return SinkError(
        "HF-K032",
        "LedgerAhead",
        f"the target has frames up to {last}, this state folder made frames up to {made}.",
        where=where,
        why=f"the ledger knows the content of the last {kept:,} frames; those before cannot be compared when they are"
        " made again, so nobody could tell whether they are the same",
        effect="nothing was started and nothing was written",
        do=_ways("put the newer state folder back", " --renumber"),
    )


def _ways(first: str, option: str = "") -> str:
    return (
        f"{first};\nor let this one go on in the same target, with numbers above those that are there (rows that are there"
        f" stay, rows it makes anew come again):\nholdfast adopt-table FILE SINK{option}\n"
        "or give the sink another target; or start over: delete the target as well"
    )


_at_work: ContextVar[tuple[Owner | None, str]] = ContextVar("holdfast_owner", default=(None, ""))


@contextmanager
def at_work(owner: Owner | None, sink: str = "") -> Iterator[None]:
    """While a function of the user's is called by a run: `hf.once` in it belongs to the run's state folder, and to this sink."""
    token = _at_work.set((owner, sink))
    try:
        yield
    finally:
        _at_work.reset(token)


def current_owner() -> Owner | None:
    return _at_work.get()[0]


def current_sink() -> str:
    """The sink whose function is called; '' outside of a run."""
    return _at_work.get()[1]
