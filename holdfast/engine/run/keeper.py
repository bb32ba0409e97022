"""The thread that keeps a run moving: gives permits, looks after units, disk and promises, and ends the run.

The run ends when a bounded input is worked off with its closing frames, when it is asked to stop (after the frame
in work), or at the first error: then what is sealed stays sealed, sinks write what they can, and a new run goes on
from there.
"""

from __future__ import annotations

import threading
import time

from holdfast.engine.flow.disks import full_while_running, is_full
from holdfast.engine.flow.scheduler import Hold
from holdfast.engine.run.parts import RunParts
from holdfast.errors import HoldfastError
from holdfast.journals.incidents import Incidents

__all__ = ["Keeper"]

_PROGRESS_S = 0.5


class Keeper(threading.Thread):
    def __init__(self, parts: RunParts) -> None:
        super().__init__(name="permits", daemon=True)
        self._parts = parts
        self._told = 0.0

    def run(self) -> None:
        parts = self._parts
        board = parts.board
        try:
            while not parts.done.is_set():
                try:
                    if self._step():
                        break
                except OSError as error:
                    if not is_full(error):
                        raise
                    parts.disk.met(error)  # what it was about to write is written when there is room
                    board.held_for_space = parts.disk.held()
                    parts.done.wait(0.2)
            if board.failed_source is not None:
                raise board.failed_source
            if (given_up := parts.supervisor.given_up_error()) is not None:
                raise given_up
        except BaseException as error:
            board.fail(error)
        finally:
            try:
                self._shut_down()
            except BaseException as error:
                if is_full(error) and not isinstance(error, HoldfastError):
                    error = full_while_running(
                        "the end of the run", error, "what is sealed stays sealed; the next run goes on"
                    )
                board.fail(error)
                parts.state = "failed"
                parts.release()
            finally:
                parts.done.set()

    def _step(self) -> bool:
        """Whether the run is over."""
        parts, board = self._parts, self._parts.board
        with board.changed:
            moved = self._give_permits()
            finished = self._finished()
            if not moved and not finished:
                board.changed.wait(timeout=0.2)
        parts.units.look()
        if time.monotonic() - self._told > _PROGRESS_S:
            self._told = time.monotonic()
            board.held_for_space = parts.disk.held()
            with board.changed:
                written = {sink: n for sink, (_, n) in board.sinks.items()}
                parts.promises.look(written, time.monotonic())
            self._alert()
            parts.tell()
        return finished

    def _alert(self) -> None:
        status = self._parts.status()
        told = {"process": status.process, "state": status.state, "frame": status.frame}
        self._parts.alerts.state(status.degraded, told)

    def _give_permits(self) -> bool:
        parts, moved = self._parts, False
        for name, unit in parts.board.units.items():
            while True:
                verdict = parts.board.next_permit(unit)
                if isinstance(verdict, Hold):
                    unit.held = verdict.why
                    break
                parts.delays.permitted(parts.units[name].unit, verdict.n, time.monotonic())
                parts.units[name].permit(verdict)
                unit.permitted = verdict.n
                unit.held = ""
                moved = True
        return moved

    def _finished(self) -> bool:
        board = self._parts.board
        if board.error is not None:
            return True
        units = board.units.values()
        if board.stopping:  # a unit that is down has nothing in work; the next run takes it up
            idle = all(unit.condition != "RUNNING" or unit.permitted <= unit.processed for unit in units)
        else:
            # With a live source the others go on, whatever is given up; once none can, the run is over.
            idle = all(board.is_idle(unit) for unit in units)
        return idle and board.sinks_are_done()

    def _shut_down(self) -> None:
        parts, board = self._parts, self._parts.board
        with board.changed:
            parts.state = "stopping"
            board.stopping = True
            board.changed.notify_all()
        parts.tell()
        parts.notes += board.left_waiting()
        for intake in parts.intakes:
            intake.halt()
        parts.units.stop()
        for kept in (parts.guards, parts.durable):
            if kept is not None:
                kept.close()
        for outlet in parts.outlets:
            outlet.halt()
        for thread in (*parts.intakes, *parts.outlets):
            thread.join(timeout=30)
        with board.changed:
            last = board.last_data_frame
            end = None if last is None else last + board.closing_frames  # whatever `until` says
            whole = end is not None and all(u.processed >= end for u in board.units.values())
        if board.error is not None:
            parts.state = "failed"
            Incidents(parts.folder.root, epoch=parts.folder.epoch).note("error", error=board.error)
        else:
            parts.state = "finished" if whole else "stopped"
        parts.tell()
        parts.release()
        parts.alerts.close()
