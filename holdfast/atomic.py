"""One way to write a file whole: under a name of its own, then renamed into its place.

Whoever sees the name sees all of it. With `sync=True` it also outlasts a loss of
power: the content is synced before the rename, the folder after it, so no name can
come back without its content. Without, both may be lost or torn in that case, and
the caller has to be able to make the file again.

A draft that was left behind by a death ends in `.PID-COUNT.draft` and is nobody's: `sweep`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "drafted",
    "make_folder",
    "put_in_place",
    "sweep",
    "sync_file",
    "sync_folder",
    "sync_names",
    "sync_way",
    "write_whole",
]

_DRAFT = ".draft"
_IS_DRAFT = re.compile(r"\.\d+-\d+\.draft$")  # as `drafted` names them: a user's file may end in .draft too
_attempts = itertools.count()


def write_whole(final: Path | str, data: Any, *, sync: bool = False, mode: int | None = None) -> None:
    """The file holds the old content or the new, never a part. `data`: text or bytes. `mode`: its permissions, 0o666 less the umask if not given."""
    with drafted(final, sync=sync) as draft:
        content = data.encode() if isinstance(data, str) else data
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


@contextlib.contextmanager
def drafted(final: Path | str, *, sync: bool = False) -> Iterator[Path]:
    """A name beside the final one to write to; it is put in place when the block ends well, removed when it does not."""
    final = Path(final)
    # Two attempts at one file never share a draft: process id, then a count inside it.
    draft = final.with_name(f"{final.name}.{os.getpid()}-{next(_attempts)}{_DRAFT}")
    try:
        yield draft
        put_in_place(draft, final, sync=sync)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def put_in_place(draft: Path | str, final: Path | str, *, sync: bool = False) -> None:
    """Rename what was written whole. With `sync`: content first, then the name."""
    if sync:
        sync_file(draft)
    os.replace(draft, final)
    if sync:
        sync_folder(Path(final).parent)


def sync_file(path: Path | str) -> None:
    """The content of the file, as it is now, outlasts a loss of power. Its name may not: `sync_folder`."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# A folder is synced by the same call; the names in it are its content.
sync_folder = sync_file


def make_folder(path: Path | str, *, sync: bool = False, mode: int = 0o777) -> None:
    """A folder and those above it. With `sync`, the names of those made here outlast a loss of power."""
    path = Path(path)
    made: list[Path] = []
    above = path
    while not above.exists():
        made.append(above)
        above = above.parent
    path.mkdir(parents=True, exist_ok=True, mode=mode)
    if sync:
        for folder in reversed(made):
            sync_folder(folder.parent)


def sync_way(folder: Path | str) -> None:
    """The name of a folder and of those above it, as far as its disk goes: whoever made them may have died before it synced."""
    for above in Path(folder).absolute().parents:
        try:
            sync_folder(above)
        except PermissionError:  # not ours to open, nor to have made
            return
        if above.is_mount():
            return


def sync_names(root: Path | str, *, but: tuple[str, ...] = ()) -> None:
    """All names below a folder, and its own; `but`: folders directly in it that are passed over."""
    for here, _ in _below(root, but):
        with contextlib.suppress(FileNotFoundError):
            sync_folder(here)
    sync_way(root)


def sweep(root: Path | str, *, but: tuple[str, ...] = ()) -> int:
    """Remove the drafts below a folder that attempts left which died; only while nobody writes there. `but`: as in `sync_names`."""
    left = [here / name for here, names in _below(root, but) for name in names if _IS_DRAFT.search(name)]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def _below(root: Path | str, but: tuple[str, ...]) -> Iterator[tuple[Path, list[str]]]:
    """Each folder with the names of its files. A stream may be called like one of `but`: further down no name is special."""
    for here, folders, names in os.walk(root):
        if Path(here) == Path(root):
            folders[:] = [name for name in folders if name not in but]
        yield Path(here), names
