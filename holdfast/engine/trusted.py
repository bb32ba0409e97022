"""Whose files are believed: those of the user and of root, in folders that nobody else can write to.

`holdfast.toml` names commands, folders and a master; a state folder names other folders. Found
by chance in a folder such as the temporary one, they would be anybody's words. A file that the
user names is not asked for its owner, and neither is the process's file, which is the user's program.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

__all__ = ["distrusted", "owned_by_another"]


def distrusted(path: Path) -> str:
    """Why what lies here is not believed; "" if it is: the owner and the permissions of it and of its folder."""
    try:
        for each in (path, path.parent):
            if why := _of(each, os.stat(each)):
                return why
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror}"
    return ""


def owned_by_another(folder: Path) -> str:
    """Why a folder that is there already is not ours to believe; one that we may chmod becomes private when it is used."""
    try:
        found = os.stat(folder)
    except OSError:
        return ""
    if os.geteuid() != 0 and found.st_uid not in _ours():
        return f"it belongs to {_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH and found.st_uid != os.geteuid():
        return "everybody can write to it"
    return ""


def _of(path: Path, found: os.stat_result) -> str:
    if found.st_uid not in _ours():
        return f"{path} belongs to {_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return f"everybody can write to {path}"
    if found.st_mode & stat.S_IWGRP and found.st_gid != 0 and not _is_private(found.st_gid):
        return f"group {_group(found.st_gid)} can write to {path}"
    return ""


def _ours() -> set[int]:
    """Root, the user, and who became root by sudo."""
    before = os.environ.get("SUDO_UID", "")
    return {0, os.geteuid()} | ({int(before)} if os.geteuid() == 0 and before.isdecimal() else set())


def _is_private(gid: int) -> bool:
    """Debian gives each user a group of the same name and nobody else in it."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name in {_name(uid) for uid in _ours()} and set(group.gr_mem) <= {group.gr_name}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
