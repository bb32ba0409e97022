"""The exception tree. Every error says what became of the data.

    HoldfastError
    ├── ProcessRefused      check failed: nothing was started (exit 3)
    ├── UsageError          the command or call makes no sense (exit 2)
    ├── StateRefused        state folder in use, or state does not fit (exit 6)
    ├── EnvironmentRefused  no Java, no session, no room to write (exit 6)
    ├── SourceError         an input cannot be read as declared (exit 5)
    ├── OperatorError       the user's code raised (exit 5)
    ├── SinkError           an output cannot be written (exit 5)
    │   └── SinkAway        its server does not answer: a running sink tries again
    ├── FrameDiffers        a frame was sealed again with other content (exit 5)
    ├── UnitError           a unit's query died (exit 5)
    └── Broken              an invariant of ours does not hold (exit 70)

An error has a code (HF-X000), a title, and four fields: where, why, effect, do.
Every code has a section in docs/errors.md; a test compares the lists.

An error also says what is done about the unit that ended with it (`remedy`). The code decides that, here and
nowhere else: an error of a worker reaches the driver as text, and the code is what survives.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.redaction import hidden, redacted

__all__ = [
    "Broken",
    "EnvironmentRefused",
    "Finding",
    "FrameDiffers",
    "HoldfastError",
    "OperatorError",
    "ProcessRefused",
    "Remedy",
    "SinkAway",
    "SinkError",
    "SourceError",
    "StateRefused",
    "UnitError",
    "UsageError",
    "error_from_text",
    "invariant",
]


class Remedy(Enum):
    """What is done about a unit whose query ended with an error."""

    RETRY = "start it again: the next try may fare better"
    WAIT = "start it again once the disk has room; no try is counted"
    RESTORE = "what its host has of it cannot be used: put it back from a backup"
    REMAKE = "a sealed frame cannot be read: the unit that made it makes it again"
    GIVE_UP = "it comes out the same each time: the unit stands still"
    END = "no unit can go on: the run ends"


# What we find wrong ourselves comes out the same at the next try, and is not tried: GIVE_UP is what is not named here.
_REMEDIES = {
    "HF-O001": Remedy.RETRY,  # the user's code raised: the same frame twice is blamed
    "HF-U090": Remedy.RETRY,
    "HF-U031": Remedy.RETRY,
    "HF-U032": Remedy.RETRY,
    "HF-U033": Remedy.RETRY,
    "HF-U081": Remedy.WAIT,
    "HF-U034": Remedy.RESTORE,
    "HF-U035": Remedy.RESTORE,
    "HF-O010": Remedy.RESTORE,
    "HF-R004": Remedy.RESTORE,
    "HF-R040": Remedy.RESTORE,
    "HF-R041": Remedy.RESTORE,
    "HF-R043": Remedy.RESTORE,
    "HF-U036": Remedy.REMAKE,
    "HF-F002": Remedy.REMAKE,
    "HF-F005": Remedy.REMAKE,
    "HF-U030": Remedy.END,
}
# A stall, a killed worker, a lost host, damaged files that a backup replaces: they may be over by the next try.
_MAY_PASS = frozenset({"HF-U032", "HF-U033", "HF-U034", "HF-U035", "HF-U036"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found wrong, as an error or a warning, in the house format."""

    code: str  # "HF-G003"
    name: str  # "PortTypesDiffer"
    what: str  # "stream 'pulse' does not fit port 'pulse' of operator 'alarms'."
    where: str = ""
    why: str = ""
    effect: str = ""
    do: str = ""
    warning: bool = False

    def __post_init__(self) -> None:
        """However a value got into the text: it does not stay there."""
        what, why = hidden(self.code, self.what, self.why)
        for field, text in (
            ("what", what),
            ("why", why),
            ("where", self.where),
            ("effect", self.effect),
            ("do", self.do),
        ):
            object.__setattr__(self, field, redacted(text))

    def __str__(self) -> str:
        mark = " warning" if self.warning else ""
        lines = [f"{self.code}{mark} {self.name}: {self.what}"]
        for field in ("where", "why", "effect", "do"):
            text = getattr(self, field)
            if text:
                lines.append(f"  {field:<7} " + text.replace("\n", "\n" + " " * 10))
        return "\n".join(lines)


class HoldfastError(Exception):
    """Base of all our errors. `exit_code` is what the shell sees."""

    exit_code = 5

    def __init__(
        self,
        code: str,
        name: str,
        what: str,
        *,
        where: str = "",
        why: str = "",
        effect: str = "",
        do: str = "",
    ) -> None:
        self.finding = Finding(code, name, what, where, why, effect, do)
        finding = self.finding  # its texts, not ours: they are without secrets
        self.code, self.name, self.what = code, name, finding.what
        self.where, self.why, self.effect, self.do = finding.where, finding.why, finding.effect, finding.do
        self.remedy = _REMEDIES.get(code, Remedy.GIVE_UP)
        self.may_pass = code in _MAY_PASS  # over by the next try, perhaps: the network, memory; set on others that are
        super().__init__(str(finding))

    def __reduce__(self):
        # Exceptions cross process borders on Spark; the keyword fields must survive.
        return _rebuild, (type(self), self.finding)


def _rebuild(kind: type[HoldfastError], finding: Finding) -> HoldfastError:
    return kind(
        finding.code,
        finding.name,
        finding.what,
        where=finding.where,
        why=finding.why,
        effect=finding.effect,
        do=finding.do,
    )


class ProcessRefused(HoldfastError):
    exit_code = 3

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = list(findings)
        first = self.findings[0]
        super().__init__(
            first.code,
            first.name,
            first.what,
            where=first.where,
            why=first.why,
            effect=first.effect,
            do=first.do,
        )

    def __str__(self) -> str:
        return "\n\n".join(str(finding) for finding in self.findings)

    def __reduce__(self):
        return ProcessRefused, (self.findings,)


class UsageError(HoldfastError):
    exit_code = 2


class StateRefused(HoldfastError):
    exit_code = 6


class EnvironmentRefused(HoldfastError):
    exit_code = 6


class SourceError(HoldfastError):
    pass


class OperatorError(HoldfastError):
    pass


class SinkError(HoldfastError):
    pass


class SinkAway(SinkError):
    """The same write may succeed later: frames stay queued, the sink tries again."""


class SinkRefused(SinkError):
    """The target refuses a row of the frame for its values; the same write fails again."""


class FrameDiffers(HoldfastError):
    pass


class UnitError(HoldfastError):
    pass


class Broken(HoldfastError):
    exit_code = 70


# By the letter of a code, the kind of an error that a worker raised; of some the code alone says it is the user's.
_KINDS: dict[str, type[HoldfastError]] = {"S": SourceError, "F": FrameDiffers, "O": OperatorError}
_OF_THE_USER = frozenset({"HF-U070", "HF-U071", "HF-U090"})


def error_from_text(code: str, name: str, what: str, **fields: str) -> HoldfastError:
    """An error of ours that crossed a process border as text."""
    kind = OperatorError if code in _OF_THE_USER else _KINDS.get(code[3], UnitError)
    return kind(code, name, what, **fields)


def invariant(holds: bool, story: str) -> None:
    """Like assert, but `python -O` does not delete it."""
    if not holds:
        raise Broken(
            "HF-X001",
            "Broken",
            story,
            effect="the run stops here; sealed frames and sink tables are as they were",
            do="this is a defect of Holdfast: report it with this text",
        )
