"""All edges of one unit: frame n only when every input has it, and room only when every output stream has.

Promise: frame n is handed over once, with exactly one frame per input edge, number
n - delay of each, and in the order of n. No frame is begun for whose outputs a queue
has no room.

Why it holds. A frame is ready when every receiver has reached it. Order between edges
never enters, so replays need no log of interleavings. Every output stream has a queue
(`queue.FrameQueue`), and the fullest of them decides.

Pure: no clock, randomness, thread, file or socket. Driven by `protocols.unit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from holdfast.protocols.dialogue import InputFrame, OutputFrame
from holdfast.protocols.edges import Receiver
from holdfast.protocols.queue import FrameQueue
from holdfast.protocols.wiring import EdgeId, Frame, OutputEdge

__all__ = ["InputPorts", "OutputPorts"]


class InputPorts:
    """The receivers of a unit, in the wiring's order."""

    def __init__(self, receivers: Mapping[EdgeId, Receiver]) -> None:
        self._receivers = receivers

    def ready(self, number: Frame) -> bool:
        return all(receiver.has(number) for receiver in self._receivers.values())

    def take(self, number: Frame) -> tuple[InputFrame | None, ...]:
        """Hand over the inputs of a frame; None where an edge had not begun or skipped."""
        return tuple(receiver.take(number) for receiver in self._receivers.values())

    def forward(self, processed: Frame) -> None:
        for receiver in self._receivers.values():
            receiver.forward(processed)


class OutputPorts:
    """The queues of a unit, one per port; an edge reads the queue of its port."""

    def __init__(
        self,
        outputs: tuple[OutputEdge, ...],
        bytes_max: int,
        start: Frame = 0,
        acked: Iterable[tuple[EdgeId, Frame]] = (),
        frames: Iterable[tuple[Frame, OutputFrame]] = (),
        queue_type: type[FrameQueue[EdgeId, OutputFrame]] = FrameQueue,
    ) -> None:
        self.queues: dict[int, FrameQueue[EdgeId, OutputFrame]] = {}
        self._queue_of: dict[EdgeId, FrameQueue[EdgeId, OutputFrame]] = {}
        for output in outputs:
            queue = self.queues.get(output.port)
            if queue is None:
                queue = self.queues[output.port] = queue_type(f"port {output.port}", bytes_max, keeps_unacked=True)
            self._queue_of[output.edge] = queue
            if output.delay:
                queue.exempt.add(output.edge)
        self.sealed = start
        self.start_at(start, acked, frames)

    def start_at(
        self, at: Frame, acked: Iterable[tuple[EdgeId, Frame]], frames: Iterable[tuple[Frame, OutputFrame]]
    ) -> None:
        """Go on after `at`; a consumer may be ahead of a producer that was restored."""
        known, came = dict(acked), sorted(frames, key=lambda item: item[0])
        self.sealed = at
        for edge, queue in self._queue_of.items():
            queue.acked[edge] = known.get(edge, at)
        for port, queue in self.queues.items():
            queue.go_back(at, {number: frame for number, frame in came if frame.port == port}, same=False)
            queue.trim()
            queue.refuse_holes()

    def of(self, edge: EdgeId) -> FrameQueue[EdgeId, OutputFrame]:
        return self._queue_of[edge]

    def append(self, number: Frame, outputs: tuple[OutputFrame, ...]) -> None:
        """Keep the frames sealed under this number, one per port."""
        for frame in outputs:
            queue = self.queues[frame.port]
            queue.seal(number, frame)
            queue.trim()
        self.sealed = number

    @property
    def acked(self) -> dict[EdgeId, Frame]:
        return {edge: queue.acked[edge] for edge, queue in self._queue_of.items()}

    def contents(self) -> Iterator[tuple[Frame, OutputFrame]]:
        for queue in self.queues.values():
            yield from queue.frames.items()

    @property
    def bytes_held(self) -> int:
        """Bytes that count towards the bound, of the fullest port."""
        return max((queue.unacked_bytes() for queue in self.queues.values()), default=0)

    def has_room(self, under_way: int) -> bool:
        return all(queue.has_room(under_way) for queue in self.queues.values())

    @property
    def is_half_full(self) -> bool:
        return any(queue.is_half_full for queue in self.queues.values())
