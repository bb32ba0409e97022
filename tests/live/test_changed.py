"""A changed process in the folder of the old one: refused, or carried on as decided."""

from __future__ import annotations

import json
from collections import Counter

from tests.live.conftest import FRAMES
from tests.live.runs import Bench, Fault, content


def rewrite(plant: Bench, *changes: tuple[str, str]) -> None:
    path = plant.folder / plant.file
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_changed_state_is_refused_kept_or_begun_anew_and_no_frame_is_lost(bench, undisturbed):
    """Decided between two kills, when units stand at different frames and one has sealed what it never committed."""
    plant = bench()
    first = plant.start(faults=(Fault("renamed", "driver", 9, "rises"),))
    first.ended()
    assert all(mark.exists() for mark in first.marks.values()), first.said()

    rewrite(plant, ("rise=x.celsius - before", "rise=x.celsius - before + 1000"))
    refused = plant.start()
    assert refused.ended() == 6
    assert "HF-R002 StateUndecided: operator 'rises'" in refused.said()
    assert "--keep rises" in refused.said()
    fault = Fault("state committed", "driver", 16, "per_window")
    kept = plant.start("--keep", "rises", "--until", "20", faults=(fault,))
    kept.ended()
    assert all(mark.exists() for mark in kept.marks.values()), kept.said()

    rewrite(plant, ("+ 1000", "+ 3000"), ('F.count("*").alias("n")', '(F.count("*") + 100).alias("n")'))
    refused = plant.start("--fresh", "rises")
    assert refused.ended() == 6
    assert "HF-R002 StateUndecided: operator 'per_window'" in refused.said()
    plant.finish("--fresh", "rises", "--keep", "per_window")

    found = content(plant.folder)
    for sink in found.values():
        assert [frame for _, _, frame, *_ in sink["ledger"]] == list(range(1, FRAMES + 3))
    rows = found["rises"]["rows"]
    assert [ts for ts, *_ in rows] == [ts for ts, *_ in undisturbed["rises"]["rows"]]
    begun = json.loads((plant.state / "deployment.json").read_text())["start"]["rises"]
    assert_counted(rows, begun)
    windows = [n for _, _, _, n, _, _ in found["per_window"]["rows"]]
    assert sum(n - 100 if n > 100 else n for n in windows) == len(rows)
    assert max(windows) > 100 > min(windows)


def assert_counted(rows: list[tuple], begun: int) -> None:
    """`seen` goes on under kept state and begins again after `begun`; each frame has one code, oldest first."""
    codes, ever, since = {}, Counter(), Counter()
    for _, zone, rise, seen, frame, _ in rows:
        code = round(rise, -3)
        assert codes.setdefault(frame, code) == code
        ever[zone] += 1
        since[zone] += frame > begun
        assert seen == (since if code == 3000 else ever)[zone], f"frame {frame}, zone {zone}"
    assert codes[9] == 0, "sealed by the old code before it was killed: it stays"
    assert list(codes.values()) == sorted(codes.values())
    assert set(codes.values()) == {0, 1000, 3000}
