"""Secrets by name: declared in the file, read when opened from the environment or a file.

`hf.secret("PG_URL")` is the value of PG_URL, or the text of the file that PG_URL_FILE
names, as container platforms hand them in. It never shows its value: not in repr,
errors, drawings, fingerprints or pickles. What is carried is the name alone; once it
is open, `redaction` keeps it out of messages that others write.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.redaction import remember

__all__ = ["Secret", "secret"]


@dataclass(frozen=True, slots=True)
class Secret:
    name: str

    def open(self) -> str:
        """The value, now. Called by a reader or writer when it connects, never before."""
        value = self._found()
        remember(value, repr(self))
        return value

    def _found(self) -> str:
        value = os.environ.get(self.name)
        if value is not None:
            return value
        file = os.environ.get(f"{self.name}_FILE")
        if file is None:
            raise self._missing(f"the environment has neither {self.name} nor {self.name}_FILE")
        try:
            # An editor ends the last line; a password does not end in a line break.
            return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise self._missing(
                f"{self.name}_FILE names {file}: {getattr(error, 'strerror', None) or 'it is no text'}"
            ) from None

    def _missing(self, why: str) -> UsageError:
        return UsageError(
            "HF-C009",
            "SecretMissing",
            f"secret '{self.name}' is not set.",
            why=why,
            effect="nothing was opened",
            do=f"export {self.name}=... in the shell that runs Holdfast, or {self.name}_FILE=path of a file that holds it",
        )

    def __repr__(self) -> str:
        return f"hf.secret({self.name!r})"

    __str__ = __repr__


def secret(name: str) -> Secret:
    """A value that is never shown, by its name in the environment (NAME, or NAME_FILE for a file that holds it)."""
    return Secret(name)
