"""What the life of a unit hears and says: its states, what it dies of, events and instructions.

Pure: plain values. Used by `protocols.lifecycle`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.errors import HoldfastError, Remedy

__all__ = [
    "Abandon",
    "Announce",
    "AskMaker",
    "AttemptFailed",
    "Cause",
    "Cured",
    "Disown",
    "EndRun",
    "FrameUnreadable",
    "HostLost",
    "InputGone",
    "LeaveOut",
    "LeftOut",
    "LifeEvent",
    "LifeInstruction",
    "Looked",
    "LoseStreams",
    "NotCured",
    "Note",
    "Probe",
    "ProbeFailed",
    "PutBack",
    "QueryEnded",
    "RenewalWanted",
    "Restore",
    "Restored",
    "Stalled",
    "Start",
    "Started",
    "State",
    "Stopping",
    "Wake",
]


class State(Enum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUSPECT = "SUSPECT"
    DOWN = "DOWN"
    RESTORING = "RESTORING"
    PROBING = "PROBING"
    GIVEN_UP = "GIVEN_UP"


@dataclass(frozen=True, slots=True)
class Cause:
    """What a unit died of."""

    words: str  # what distinguishes one error from another
    remedy: Remedy
    of_user: bool = False  # raised by the user's code; a killed worker is not
    passes: bool = False  # it may be over by the next try
    doubtful: bool = False  # a missing file: it may be the first sign of a lost host
    error: HoldfastError | None = field(default=None, compare=False)  # handed on, never read


# ---- events ----


@dataclass(frozen=True, slots=True)
class Started:
    at_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class QueryEnded:
    at_s: float
    attempt: int
    frame: int  # the one it worked on
    cause: Cause


@dataclass(frozen=True, slots=True)
class Stalled:  # one frame is longer in work than declared
    at_s: float
    attempt: int
    frame: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class HostLost:
    at_s: float
    life: int  # which loss of the host it is: the life that ended
    frame: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class FrameUnreadable:  # told to the unit that made the frame, again and again while `reader` stumbles over it
    at_s: float
    reader: str
    frame: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class RenewalWanted:  # nothing is wrong: a parameter changed, or what it was about to read is made again
    at_s: float


@dataclass(frozen=True, slots=True)
class InputGone:  # told to a reader: nobody can make again what it stumbled over
    at_s: float


@dataclass(frozen=True, slots=True)
class Looked:  # time has passed
    at_s: float
    has_room: bool = True


@dataclass(frozen=True, slots=True)
class Restored:  # its folder is that of an attempt that can start
    at_s: float
    attempt: int
    from_backup: bool  # or from nothing: what the host had was not used


@dataclass(frozen=True, slots=True)
class AttemptFailed:  # it could not be restored, or not started
    at_s: float
    attempt: int
    frame: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Cured:  # the rows it died of are left out from now on
    at_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class NotCured:  # no rows explain it, or its operator is declared to stop
    at_s: float
    attempt: int
    frame: int


@dataclass(frozen=True, slots=True)
class ProbeFailed:  # the search itself ended with an error, or found that it had passed
    at_s: float
    attempt: int
    frame: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class LeftOut:  # a unit above was given up: there is nothing to be gained by trying this one again
    pass


@dataclass(frozen=True, slots=True)
class Stopping:
    pass


LifeEvent = (
    Started | QueryEnded | Stalled | HostLost | FrameUnreadable | RenewalWanted | InputGone | Looked | Restored
    | AttemptFailed | Cured | NotCured | ProbeFailed | LeftOut | Stopping
)  # fmt: skip


# ---- instructions ----


@dataclass(frozen=True, slots=True)
class Disown:  # nothing this attempt still does may become fact
    attempt: int


@dataclass(frozen=True, slots=True)
class LoseStreams:  # the sealed frames of the unit are gone, or not to be used
    pass


@dataclass(frozen=True, slots=True)
class Abandon:  # end what is left of this attempt, and wait until it can touch nothing
    attempt: int


@dataclass(frozen=True, slots=True)
class Restore:  # make the unit's folder that of attempt `attempt`, and report
    attempt: int
    near_is_good: bool
    frames_are_gone: bool


@dataclass(frozen=True, slots=True)
class PutBack:  # tell the others where the unit goes on after a restore
    attempt: int


@dataclass(frozen=True, slots=True)
class Announce:  # tell the others what was committed and never said
    attempt: int


@dataclass(frozen=True, slots=True)
class Start:
    attempt: int


@dataclass(frozen=True, slots=True)
class Probe:  # seek the rows on which the user's code raises
    attempt: int
    frame: int


@dataclass(frozen=True, slots=True)
class AskMaker:  # of a frame that could not be read: it is to make it again
    frame: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Note:  # for whoever reads what happened: it died
    frame: int
    cause: Cause
    tries: int


@dataclass(frozen=True, slots=True)
class LeaveOut:  # it is given up: it and what is below it stand still
    frame: int
    cause: Cause
    tries: int
    same: int = 0  # how often it met the same, if that is why


@dataclass(frozen=True, slots=True)
class Wake:  # it wants to be looked at then; who looks all the time need not listen
    at_s: float


@dataclass(frozen=True, slots=True)
class EndRun:
    cause: Cause


LifeInstruction = (
    Disown | LoseStreams | Abandon | Restore | PutBack | Announce | Start | Probe | AskMaker | Note | LeaveOut | Wake
    | EndRun
)  # fmt: skip
