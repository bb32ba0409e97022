"""Sending the checkpoints of one unit to its stores: drives `protocols.shipping.Shipping`.

One thread per store, each with room for one request: a newer one takes the place of one
that waits, so a store that is away gathers nothing and gets the newest when it is back.
The machine is asked under a lock, callbacks are called outside of it, one at a time and
in the machine's order, from whichever thread is there.

Before the first request to a store, and after each trouble with it, its thread sees
whether it has lost what it knew; if so it learns from its peers first. Where one copy is
enough there are too few peers to learn all from. It then asks those there are: a claim
needs every register then, so they know every epoch, and this unit, which runs and knows
its last checkpoint, brings it at once.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from holdfast.errors import invariant
from holdfast.hosts.store_answers import StoreLost
from holdfast.hosts.stores import OpenStore, StoreAway, who_know
from holdfast.protocols.messages import Manifest, Stage, Stamp, StoreAnswered, StoreSent, Verdict
from holdfast.protocols.shipping import SendToStore, Shipped, Shipping, ShippingInstruction, Superseded

__all__ = ["Shipper"]


class Shipper:
    """Sends checkpoints of one unit to its stores, in threads of its own; one slow store delays nobody else."""

    def __init__(
        self,
        stamp: Stamp,
        stores: Sequence[OpenStore],
        needed: int,
        content: Callable[[str], bytes],
        on_shipped: Callable[[Manifest, Stage], None],
        on_superseded: Callable[[], None],
        on_trouble: Callable[[str, Exception], None],
        retry_s: float = 1.0,
    ) -> None:
        self.bytes_written = {store.name: 0 for store in stores}
        invariant(len(self.bytes_written) == len(stores), f"stores of unit {stamp.unit!r} share a name.")
        self._unit = stamp.unit
        self._stores = tuple(stores)
        self._needed = needed
        self._content = content
        self._on_shipped, self._on_superseded, self._on_trouble = on_shipped, on_superseded, on_trouble
        self._retry_s = retry_s
        self._machine = Shipping(stamp, tuple(self.bytes_written), needed)
        self._changed = threading.Condition()  # guards the machine and all below
        self._requests: dict[str, StoreSent] = {}
        self._over = False
        self._said: deque[Callable[[], None]] = deque()
        self._saying = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, args=(store,), name=f"ship {stamp.unit} to {store.name}", daemon=True)
            for store in stores
        ]
        for thread in self._threads:
            thread.start()

    def ship(self, manifest: Manifest, stage: Stage) -> None:
        """Returns at once; `on_shipped` comes when enough stores hold it."""
        self._react(lambda: self._machine.ship(manifest, stage))  # says nothing, so calls nobody back

    def again(self, store: str) -> None:
        """A store lost its folder: it gets the checkpoint in force again, without waiting for the next one."""
        if store in {each.name for each in self._stores}:
            self._react(lambda: self._machine.store_found(store))

    def close(self) -> None:
        """Waits for a write under way; sends nothing more."""
        with self._changed:
            self._end()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # ---- one thread per store --------------------------------------------------------

    def _serve(self, store: OpenStore) -> None:
        sure = False
        while (request := self._taken(store.name)) is not None:
            try:
                if not sure:
                    self._mend(store)
                answer = store.ask(request, lambda name: self._counted(store.name, name))
                _must_be_kept(request, answer)
            except Exception as error:  # whatever it is: told, and tried again
                sure = False
                self._tell(partial(self._on_trouble, store.name, error))
                if self._rest():
                    self._react(lambda: self._machine.store_found(store.name))
            else:
                sure = True
                self._react(partial(self._machine.answered, answer))  # type: ignore[arg-type]
                self._say()

    def _mend(self, store: OpenStore) -> None:
        try:
            trace = store.trace(self._unit)
        except StoreLost as error:
            self._tell(partial(self._on_trouble, store.name, error))
            store.reopen()
            trace = store.trace(self._unit)
        if not trace.joined or trace.epoch == 0:
            peers = [peer for peer in self._stores if peer is not store]
            # Where all have lost their folders nobody can teach: what they forgot, we know, who hold the unit.
            enough = min(len(self._stores) - self._needed + 1, who_know(peers, self._unit))
            store.join(peers, [self._unit], enough)

    def _counted(self, store: str, name: str) -> bytes:
        content = self._content(name)
        self.bytes_written[store] += len(content)  # one thread per store writes here
        return content

    def _taken(self, store: str) -> StoreSent | None:
        """The next request for this store; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or store in self._requests)
            return None if self._over else self._requests.pop(store)

    def _rest(self) -> bool:
        """Wait before the next try; False at the end."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._over, self._retry_s)

    # ---- the machine -----------------------------------------------------------------

    def _react(self, event: Callable[[], list[ShippingInstruction]]) -> None:
        with self._changed:
            for instruction in event() if not self._over else ():
                match instruction:
                    case SendToStore(store, request):
                        self._requests[store] = request
                    case Shipped(manifest, stage):
                        self._said.append(partial(self._on_shipped, manifest, stage))
                    case Superseded():
                        self._said.append(self._on_superseded)
                        self._end()
                    case _:
                        assert_never(instruction)
            self._changed.notify_all()

    def _end(self) -> None:
        self._over = True
        self._requests.clear()
        self._changed.notify_all()

    def _tell(self, what: Callable[[], None]) -> None:
        self._said.append(what)
        self._say()

    def _say(self) -> None:
        """Whoever comes while another thread is calling back leaves its news to that one."""
        while self._said and self._saying.acquire(blocking=False):
            try:
                while self._said:
                    self._call(self._said.popleft())
            finally:
                self._saying.release()

    def _call(self, back: Callable[[], None]) -> None:
        try:
            back()
        except Exception:  # a defect of the caller's, shown like that of any thread; the stores are served on
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def _must_be_kept(request: StoreSent, answer: object) -> None:
    """A store that misses what it has just been given would be given it for ever."""
    if not isinstance(answer, StoreAnswered):
        invariant(False, f"a store answered a checkpoint with {type(answer).__name__}.")
        return
    if answer.verdict is Verdict.MISSING and request.stage is not Stage.COMMIT:
        again = [name for name in answer.missing if name in request.files]
        if again:
            raise StoreAway(f"store {answer.store} does not keep what it is given: {', '.join(again)}")
