"""Content checksums of the frames that the tests here make, recorded once and compared ever after.

A change of the code's shape changes no frame. `checksums.json` holds, for every test, the first frames of every stream
it seals; a frame that comes out with another checksum fails the test that made it. Frames that are not the same twice
are not recorded, nor those of tests in which the moment decides what is in a frame: live sources, parameters set
while it runs, units that may lose.

    python -m pytest tests/spark --record-checksums      once more keeps what is the same both times
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

__all__ = ["FILE", "Checksums"]

FILE = Path(__file__).with_name("checksums.json")
# Of each stream in a test: beyond that a difference would have shown before.
FRAMES_MAX = 12
DIGITS = 8


class Checksums:
    """Of all tests: what was recorded, and what is seen now."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self.recorded: dict[str, dict[str, dict[str, str]]] = json.loads(file.read_text()) if file.exists() else {}
        self._seen: dict[str, dict[str, dict[str, set[str]]]] = {}

    def begin(self, test: str) -> None:
        self._seen[test] = defaultdict(lambda: defaultdict(set))

    def sealed(self, test: str, stream: str, n: int, checksum: str) -> None:
        if n <= FRAMES_MAX:
            self._seen[test][stream][str(n)].add(checksum[-DIGITS:])

    def differing(self, test: str) -> list[str]:
        """Frames of this test that are not what they were."""
        return [
            f"frame {n} of {stream}: {', '.join(sorted(totals))}, was {was}"
            for stream, frames in self._seen[test].items()
            for n, totals in frames.items()
            if (was := self.recorded.get(test, {}).get(stream, {}).get(n)) is not None and totals != {was}
        ]

    def record(self) -> None:
        """Keep what is the same as before; of tests that are new, all."""
        kept = dict(self.recorded)
        for test, streams in self._seen.items():
            before = self.recorded.get(test)
            kept[test] = {
                stream: same
                for stream, frames in sorted(streams.items())
                if (
                    same := {
                        n: next(iter(totals))
                        for n, totals in sorted(frames.items(), key=lambda each: int(each[0]))
                        if len(totals) == 1 and (before is None or before.get(stream, {}).get(n) in totals)
                    }
                )
            }
        lines = (f"{json.dumps(test)}: {json.dumps(streams)}" for test, streams in sorted(kept.items()) if streams)
        self._file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
