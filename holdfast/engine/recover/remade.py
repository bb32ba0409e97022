"""Frames that somebody asked to have made again: once they are, the new checksum is noted beside the old one."""

from __future__ import annotations

from pathlib import Path

from holdfast.engine.flow.scheduler import Board
from holdfast.journals.incidents import Incidents
from holdfast.records.remaking import asked_remakes

__all__ = ["Awaited"]


class Awaited:
    def __init__(self, root: Path, board: Board) -> None:
        self._board = board
        self._asked = [each for each in asked_remakes(root) if not _is_sealed(board, each)]

    def look(self, incidents: Incidents) -> None:
        """Called again and again; costs nothing while nothing is awaited."""
        for asked in list(self._asked):
            with self._board.changed:
                queue = self._board.streams.get(asked["stream"])
                sealed = None if queue is None else queue.frames.get(asked["frame"])
                if queue is not None and sealed is None and queue.sealed < asked["frame"]:
                    continue
            self._asked.remove(asked)
            now = "no longer queued" if sealed is None else sealed.checksum
            word = "the same" if now == asked["checksum"] else now
            incidents.note(
                f"frame {asked['frame']} of {asked['stream']} was made again as {asked['who']} asked: "
                f"its checksum was {asked['checksum']} and is {word}",
                frame=asked["frame"],
            )


def _is_sealed(board: Board, asked: dict) -> bool:
    """Made again by an earlier run already, which has said so."""
    queue = board.streams.get(asked["stream"])
    return queue is None or queue.sealed >= asked["frame"]
