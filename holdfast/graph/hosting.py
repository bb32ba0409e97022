"""Where units live and where their checkpoints are kept: logical hosts and backups.

A logical host is a folder: what its units know, and the frames they have sealed, lie
there and nowhere else, so losing the folder is a real loss. A backup is a copy of a
unit's checkpoints in the folder of another host, or under any URL that fsspec knows.

Pure: plain values.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsspec import available_protocols

from holdfast.graph.declared import checked_name, did_you_mean, refuse
from holdfast.graph.secrets import Secret

__all__ = ["DEFAULT_HOSTS", "Backup", "Host", "backup", "checked_hosts", "spread"]

DEFAULT_HOSTS = ("host1", "host2")


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    folder: str | None = None  # None: below the state folder


@dataclass(frozen=True, slots=True)
class Backup:
    """`copies` on other hosts, or one under each URL; `needed` of them make a checkpoint stored."""

    urls: tuple[str, ...] = ()
    copies: int = 1
    needed: int | None = None
    key: Secret | None = None

    @property
    def needed_of(self) -> int:
        """How many copies must be there: more than half, unless declared."""
        return self.needed if self.needed is not None else self.copies // 2 + 1


def spread(hosts: Sequence[str], units: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Which host each unit lives on: the one it is placed on, else one after the other in the order of the units."""
    return {unit: placed or hosts[at % len(hosts)] for at, (unit, placed) in enumerate(units)} if hosts else {}


def backup(*urls: str, copies: int | None = None, needed: int | None = None, key: Secret | None = None) -> Backup:
    """Where checkpoints are kept: `copies` on other hosts, or one under each URL (a folder, "s3://...").

    `needed` says how many copies must hold a checkpoint before it counts; more than half by default.
    `key=hf.secret("NAME")`: only copies that were made with this key are ever used, whoever can write where they lie.
    """
    if any(not isinstance(url, str) or not url for url in urls):
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"backup{urls!r} names no place.",
            do="write hf.backup('/mnt/other') or hf.backup(copies=2)",
        )
    for url in urls:
        scheme = url.partition("://")[0] if "://" in url else "file"
        if scheme not in available_protocols():
            do = did_you_mean(
                scheme, available_protocols(), "write a folder, 's3://bucket/path' or another file system of fsspec"
            )
            raise refuse("HF-C003", "UnknownWord", f"backup {url!r}: there is no file system {scheme!r}.", do=do)
    if urls and copies not in (None, len(urls)):
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"backup({len(urls)} places, copies={copies!r}): each place holds one copy.",
            do="leave copies out",
        )
    count = len(urls) or (1 if copies is None else copies)
    for what, value in (("copies", count), ("needed", 1 if needed is None else needed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise refuse(
                "HF-C003", "UnknownWord", f"{what}={value!r} is no number of copies.", do=f"take {what}=1 or more"
            )
    if needed is not None and needed > count:
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"needed={needed} of {count} copies can never be.",
            do=f"take needed={count} or more copies",
        )
    if key is not None and not isinstance(key, Secret):
        raise refuse(
            "HF-C003",
            "UnknownWord",
            "backup(key=...) is given a value.",
            do='write key=hf.secret("NAME"): a key in the file is no secret',
        )
    return Backup(tuple(urls), count, needed, key)


def checked_hosts(hosts: object) -> tuple[Host, ...]:
    """hosts=("a", "b"), or hosts={"a": "/disk1", "b": "/disk2"}."""
    if hosts is None:
        return ()
    if isinstance(hosts, Mapping):
        found = tuple(Host(checked_name(name, what="host"), str(folder)) for name, folder in hosts.items())
    elif isinstance(hosts, Sequence) and not isinstance(hosts, str):
        found = tuple(Host(checked_name(name, what="host")) for name in hosts)
    else:
        found = ()
    folders = list(hosts.values()) if isinstance(hosts, Mapping) else []
    if not found or not all(isinstance(folder, str | os.PathLike) for folder in folders):
        raise refuse(
            "HF-C003",
            "UnknownWord",
            f"hosts={hosts!r} names no hosts.",
            do='write hosts=("a", "b") or hosts={"a": "/disk1", ...}',
        )
    if len({host.name for host in found}) < len(found):
        raise refuse(
            "HF-C003", "UnknownWord", f"hosts={hosts!r}: a name is used twice.", do="give each host a name of its own"
        )
    return found
