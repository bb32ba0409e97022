"""The output queue: sealed frames kept until every consumer of the port acked.

Promise: a frame leaves only when no restart of any consumer can need it again;
and the queue asks for a checkpoint before it is full, so a bounded queue does not
stop a healthy graph.

Why it holds. Acks are cumulative and true for good (see `messages.AckSent`), so
the minimum over the consumers of a port bounds what may go. At half the bound the
producer asks for a checkpoint at once; a bound that cannot hold two checkpoint
intervals is refused by `refuse_small_bound`, else the queue would fill before the
checkpoint that empties it is even taken. Feedback edges do not count towards the
bound: their length is bounded by the delay of the loop, and holding a frame for a
consumer that waits for that very frame would stop the loop.

Pure: no clock, randomness, thread, file or socket. Driven by `unit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.protocols.dialogue import OutputFrame
from holdfast.protocols.invariants import ProtocolRefused, invariant
from holdfast.protocols.wiring import EdgeId, Frame, OutputEdge

__all__ = ["OutputQueue", "refuse_small_bound"]


def refuse_small_bound(bytes_max: int, every: int, frame_bytes_max: int) -> None:
    """Refuse a bound below two checkpoint intervals of the largest frames."""
    least = 2 * (every + 1) * frame_bytes_max
    if bytes_max < least:
        raise ProtocolRefused(
            f"queue bound {bytes_max} B is below {least} B: two checkpoint intervals of "
            f"{every} + 1 frames of up to {frame_bytes_max} B; the producer would be held "
            "before the checkpoint that frees it; raise the bound or checkpoint more often"
        )


class OutputQueue:
    """Frames by port and number, what each edge acknowledged, and the bytes held."""

    def __init__(
        self,
        outputs: tuple[OutputEdge, ...],
        bytes_max: int,
        start: Frame = 0,
        acked: Iterable[tuple[EdgeId, Frame]] = (),
        frames: Iterable[tuple[Frame, OutputFrame]] = (),
    ) -> None:
        self._bytes_max = bytes_max
        self._edges: dict[int, list[EdgeId]] = {}
        self._counted: dict[int, list[EdgeId]] = {}
        self._port: dict[EdgeId, int] = {}
        self.acked: dict[EdgeId, Frame] = {}
        for output in outputs:
            self._edges.setdefault(output.port, []).append(output.edge)
            if output.delay == 0:
                self._counted.setdefault(output.port, []).append(output.edge)
            self._port[output.edge] = output.port
            self.acked[output.edge] = start
        self._frames: dict[int, dict[Frame, OutputFrame]] = {p: {} for p in self._edges}
        self._trimmed: dict[int, Frame] = {}
        self._total: dict[int, dict[Frame, int]] = {p: {} for p in self._edges}
        self.sealed = start
        self.acked.update(acked)
        for port, edges in self._edges.items():
            # A consumer may be ahead of a producer that was restored.
            self._trimmed[port] = min(start, *(self.acked[e] for e in edges))
            self._total[port][self._trimmed[port]] = 0
        for number, frame in sorted(frames, key=lambda item: item[0]):
            if number > self._trimmed[frame.port]:
                self._keep(number, frame)
        for port, trimmed in self._trimmed.items():
            invariant(
                all(n in self._frames[port] for n in range(trimmed + 1, start + 1)),
                f"restored queue of port {port} has a hole in ({trimmed}, {start}]",
            )

    def _keep(self, number: Frame, frame: OutputFrame) -> None:
        total = self._total[frame.port]
        invariant(number - 1 in total, f"queue of port {frame.port} has a hole before {number}")
        self._frames[frame.port][number] = frame
        total[number] = total[number - 1] + frame.size

    def append(self, number: Frame, outputs: tuple[OutputFrame, ...]) -> None:
        """Keep the frames sealed under this number, one per port."""
        invariant(number == self.sealed + 1, f"sealed {number} after {self.sealed}")
        for frame in outputs:
            self._keep(number, frame)
        self.sealed = number
        for port in self._edges:
            self._trim(port)

    def ack(self, edge: EdgeId, number: Frame) -> bool:
        """Take a cumulative ack; an old one may arrive late. Say whether it is news."""
        invariant(edge in self.acked, f"ack from unknown edge {edge!r}")
        if number <= self.acked[edge]:
            return False
        # A restored producer may stand before its consumer's ack; what it makes
        # again up to there nobody needs.
        self.acked[edge] = number
        self._trim(self._port[edge])
        return True

    def _trim(self, port: int) -> None:
        safe = min(min(self.acked[e] for e in self._edges[port]), self.sealed)
        trimmed = self._trimmed[port]
        frames, total = self._frames[port], self._total[port]
        while trimmed < safe:
            del total[trimmed]
            trimmed += 1
            del frames[trimmed]
        self._trimmed[port] = trimmed

    def trimmed(self, edge: EdgeId) -> Frame:
        """The highest frame of the edge's port that is gone."""
        return self._trimmed[self._port[edge]]

    def frame(self, edge: EdgeId, number: Frame) -> OutputFrame:
        return self._frames[self._port[edge]][number]

    def contents(self) -> Iterator[tuple[Frame, OutputFrame]]:
        for frames in self._frames.values():
            yield from frames.items()

    @property
    def bytes_held(self) -> int:
        """Bytes that count towards the bound, of the fullest port."""
        most = 0
        for port, edges in self._counted.items():
            total = self._total[port]
            acked = min(min(self.acked[e] for e in edges), self.sealed)
            most = max(most, total[self.sealed] - total[max(acked, self._trimmed[port])])
        return most

    @property
    def is_full(self) -> bool:
        return self.bytes_held >= self._bytes_max

    @property
    def is_half_full(self) -> bool:
        """Time to ask for a checkpoint: the other half is for the time it takes."""
        return 2 * self.bytes_held >= self._bytes_max
