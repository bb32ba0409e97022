"""What a sink was handed, if its target cannot be queried from here: a function, a console, a server.

    sinks/NAME/shown   {"stream": ..., "frame": n}: it may have frames up to n

Written before it is handed a frame. A function that raises has still seen the frame; a database that refused one has
not, and its ledger tells the run so. What a sink may have is never changed: not by a parameter that is set while
frames are made again, not by other code, not by `holdfast remake`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.atomic import make_folder, write_whole
from holdfast.journals.notes import as_note, read_note

__all__ = ["Shown", "shown_to"]

_NAME = "shown"


class Shown:
    """Of one sink in operation. `sync`: what it was handed is known after a power loss too."""

    def __init__(self, folder: Path, stream: str, *, sync: bool) -> None:
        self._path, self._stream, self._sync = folder / _NAME, stream, sync
        self.frame = shown_to(folder, stream)  # it may have frames up to this one
        make_folder(folder, sync=True, mode=0o700)

    def trying(self, n: int) -> None:
        """Before the target sees frames up to n."""
        if n > self.frame:
            self._write(n)

    def has_only(self, n: int) -> None:
        """Its ledger says so. On a full disk the older note stays, which claims more."""
        if n != self.frame:
            with contextlib.suppress(OSError):
                self._write(n)

    def _write(self, n: int) -> None:
        write_whole(self._path, as_note({"stream": self._stream, "frame": n}), sync=self._sync)
        self.frame = n


def shown_to(folder: Path, stream: str) -> int:
    """The last frame of the stream that the sink may have; 0 if nothing is recorded."""
    path = folder / _NAME
    if not path.exists():
        return 0
    note = read_note(
        path,
        effect="nothing was started or changed: what the sink was handed would not be known",
        do="put the file back from a copy; without one delete it, and change neither code nor parameters before the next frame is written",
    )
    return int(note["frame"]) if note.get("stream") == stream else 0
