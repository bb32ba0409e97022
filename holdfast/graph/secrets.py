"""Secrets by name: declared in the file, read from the environment when opened.

`hf.secret("PG_URL")` never shows its value: not in repr, errors, drawings,
fingerprints or pickles. What is carried is the name alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from holdfast.errors import UsageError

__all__ = ["Secret", "secret"]


@dataclass(frozen=True, slots=True)
class Secret:
    name: str

    def open(self) -> str:
        """The value, now. Called by a reader or writer when it connects, never before."""
        value = os.environ.get(self.name)
        if value is None:
            raise UsageError(
                "HF-C009",
                "SecretMissing",
                f"secret '{self.name}' is not set.",
                why=f"the environment has no variable {self.name}",
                effect="nothing was opened",
                do=f"export {self.name}=... in the shell that runs Holdfast",
            )
        return value

    def __repr__(self) -> str:
        return f"hf.secret({self.name!r})"

    __str__ = __repr__


def secret(name: str) -> Secret:
    return Secret(name)
