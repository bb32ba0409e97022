"""Strike files one bit or one end at a time, and judge what is made of them. Run in a process of its own: Arrow may end it.

    python -m tests.rot.striking SEED FIRST COUNT [KIND ...]

Strike number i is decided by the seed and i alone. Before each it says `i kind ...` on standard output, after it
the verdict: `same` (the right rows), `code` (an error with a code), `cured`, `shorter` (an end that looks as a crash
leaves it), or WRONG and why. A process that ends in between was ended by that strike.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Strike", "run", "struck"]

# Reading a few small files takes milliseconds; what takes this long on the slowest machine hangs.
HANGS_S = 60
ROOT = Path(__file__).resolve().parents[2]
# One in so many strikes cuts an end off; the others flip a bit.
CUTS = 5


@dataclass(frozen=True)
class Strike:
    number: int
    kind: str
    what: str
    verdict: str  # "same" | "code" | "cured" | "shorter" | "WRONG ..."


class Pristine:
    """A folder as it was built: its bytes in memory, its times on disk."""

    def __init__(self, kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        folder.mkdir()
        kind.build(folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.files = {path: (path.read_bytes(), path.stat()) for path in paths}
        self.targets = [path for path in sorted(folder.glob(kind.files)) if path.is_file() and path.stat().st_size]
        assert self.targets, kind.name
        self.right = kind.read(folder)
        self.restore()

    def restore(self, changed: Path | None = None, content: bytes = b"") -> None:
        shutil.rmtree(self.folder)
        for path, (whole, stat) in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if path == changed else whole)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def struck(pristine: Pristine, chance: random.Random) -> tuple[str, str]:
    """What was struck, and the verdict."""
    from holdfast.errors import HoldfastError
    from tests.rot.kinds import Cured

    path = chance.choice(pristine.targets)
    whole = pristine.files[path][0]
    is_cut = not chance.randrange(CUTS)
    if is_cut:
        at = chance.randrange(len(whole))
        content, what = whole[:at], f"cut to {at} of {len(whole)} bytes"
    else:
        bit = chance.randrange(len(whole) * 8)
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        content, what = bytes(changed), f"bit {bit % 8} of byte {bit // 8} of {len(whole)}"
    what = f"{path.relative_to(pristine.folder)}: {what}"
    pristine.restore(path, content)
    print(what, flush=True)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        found = pristine.kind.read(pristine.folder)
    except Cured:
        return what, "cured"
    except HoldfastError as error:
        good = re.fullmatch(r"HF-[A-Z]\d{3}", error.code) and error.code != "HF-X001" and error.effect and error.do
        return what, "code" if good else f"WRONG {error}"
    except Exception:
        return what, "WRONG " + " | ".join(traceback.format_exc().splitlines()[-4:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if found == pristine.right:
        return what, "same"
    if is_cut and pristine.kind.after_cut(pristine.right, found):
        return what, "shorter"
    return what, f"WRONG {found!r:.300} instead of {pristine.right!r:.300}"


def main(seed: int, first: int, count: int, names: list[str]) -> None:
    from tests.rot.kinds import KINDS

    os.fsync = lambda handle: None  # no power is cut here
    kinds = [kind for kind in KINDS if not names or kind.name in names]
    with tempfile.TemporaryDirectory() as scratch:
        built: dict[int, Pristine] = {}
        for number in range(first, first + count):
            at = number % len(kinds)
            if at not in built:
                built[at] = Pristine(kinds[at], Path(scratch) / str(at))
            print(number, kinds[at].name, flush=True)
            _, verdict = struck(built[at], random.Random(f"{seed}-{number}"))
            print(verdict.replace("\n", " | "), flush=True)


def run(seed: int, first: int, count: int, *, names: tuple[str, ...] = ()) -> Iterator[Strike]:
    """All strikes, whatever becomes of the process that carries them out."""
    at, end = first, first + count
    while at < end:
        command = [sys.executable, "-m", "tests.rot.striking", str(seed), str(at), str(end - at), *names]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said: list[str] = []
        for line in child.stdout:
            said.append(line.rstrip("\n"))
            if len(said) == 3:
                number, _, kind = said[0].partition(" ")
                yield Strike(int(number), kind, said[1], said[2])
                at, said = int(number) + 1, []
        errors = child.stderr.read()
        if child.wait() != 0:
            if not said:
                raise RuntimeError(f"the strikes could not be carried out: {errors[-2000:]}")
            number, _, kind = said[0].partition(" ")
            signalled = signal.Signals(-child.returncode).name if child.returncode < 0 else f"exit {child.returncode}"
            why = "it hangs" if signalled == "SIGALRM" else f"the process ended by {signalled}: {errors[-500:]!r}"
            yield Strike(int(number), kind, said[1] if len(said) > 1 else "", f"WRONG {why}")
            at = int(number) + 1


def table(found: list[Strike]) -> dict[str, Counter]:
    by_kind: dict[str, Counter] = {}
    for strike in found:
        by_kind.setdefault(strike.kind, Counter())[strike.verdict.partition(" ")[0]] += 1
    return by_kind


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
