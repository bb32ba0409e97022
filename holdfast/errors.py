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
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.redaction import hidden, redacted

__all__ = [
    "Broken",
    "EnvironmentRefused",
    "Finding",
    "FrameDiffers",
    "HoldfastError",
    "OperatorError",
    "ProcessRefused",
    "SinkAway",
    "SinkError",
    "SourceError",
    "StateRefused",
    "UnitError",
    "UsageError",
    "invariant",
]


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
    may_pass = False  # it may be over by the next try: the network, memory, a disk; set on the one that is

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
