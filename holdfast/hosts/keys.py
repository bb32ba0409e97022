"""The key of a process's backups: opened, long enough, and the one they were made with.

With another key every copy would look forged, and a store whose copies are all forged starts over: a mistyped key
must not cost the backups. So the state folder stores a hash that identifies the key; the key itself is never written.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from pathlib import Path

from holdfast.atomic import write_whole
from holdfast.errors import EnvironmentRefused
from holdfast.graph.secrets import Secret
from holdfast.hosts.sealed import PLAIN, Seal

__all__ = ["NOTE", "backup_seal"]

NOTE = "backup.key"
# Sixteen characters that nobody can guess; `openssl rand -hex 32` gives 64.
_LENGTH_MIN = 16


def backup_seal(root: Path, key: Secret | None, identity: str) -> Seal:
    """How this process seals its checkpoints; refused if its key is not the one it began with."""
    note = root / NOTE
    known = note.read_text().strip() if note.exists() else ""
    if key is None:
        if known:
            raise _another(note, "backups of this process were made with a key, and none is declared")
        return PLAIN
    secret = key.open()
    if len(secret) < _LENGTH_MIN:
        raise EnvironmentRefused(
            "HF-E060",
            "KeyTooShort",
            f"{key}, the key of the backups, has {len(secret)} characters.",
            why=f"fewer than {_LENGTH_MIN} can be guessed",
            effect="nothing was started; what the stores hold is untouched",
            do=f"export {key.name}=$(openssl rand -hex 32), and keep it where the process is restored from",
        )
    seal = Seal.keyed(secret, identity)
    own = blake2b(identity.encode(), key=seal.key, digest_size=16, person=b"holdfast known").hexdigest()
    if not known:
        write_whole(note, own, sync=True, mode=0o600)
    elif not hmac.compare_digest(known.encode(), own.encode()):
        raise _another(note, f"{key} is another one than the backups of this process were made with")
    return seal


def _another(note: Path, why: str) -> EnvironmentRefused:
    return EnvironmentRefused(
        "HF-E061",
        "KeyChanged",
        "the key of the backups is not the one they were made with.",
        where=str(note),
        why=why,
        effect="nothing was started; what the stores hold is untouched",
        do=f"give the former key; to change it while the hosts have their units, remove {note} and run again: new copies are "
        "made, the old ones are not used any more",
    )
