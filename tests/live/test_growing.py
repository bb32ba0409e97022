"""The how-to on watched folders, run as printed: a CSV that grows, files that come, and a kill in between."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

from tests.live.runs import HANGS_S, ROOT, Bench, environ, reading

HEADER = "ts,zone,celsius\n"


def rows(start: int, stop: int) -> str:
    return "".join(
        f"2026-01-05T06:{at // 240:02d}:{at // 4 % 60:02d}.{at % 4 * 25:02d}Z,{at % 3},{61 + at}.0\n"
        for at in range(start, stop)
    )


def test_a_watched_folder_gives_every_row_once_though_the_run_is_killed(tmp_path):
    page = (ROOT / "docs" / "howto" / "watched-folder.md").read_text()
    (tmp_path / "kiln.py").write_text(re.search(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[1])
    (tmp_path / "in").mkdir()
    bench = Bench(tmp_path, "kiln.py", "warm.db")
    log = tmp_path / "in" / "a.csv"

    def grows(start: int, stop: int) -> None:
        with log.open("a") as file:
            file.write(rows(start, stop))

    def written() -> list[int]:
        if not bench.last_written():
            return []
        with reading(tmp_path / "warm.db") as connection:
            return sorted(int(celsius) - 61 for (celsius,) in connection.execute("select celsius from warm"))

    def has(count: int):
        end = time.monotonic() + HANGS_S
        return lambda: len(written()) >= count or time.monotonic() > end

    try:
        log.write_text(HEADER + rows(0, 9))
        run = bench.start()
        assert run.reaches(has(4)), run.said()
        grows(9, 13)
        (tmp_path / "in" / "b.csv").write_text(HEADER + rows(13, 17))
        assert run.reaches(has(12)), run.said()
        run.kill("driver")
        run.ended()
        grows(17, 21)
        (tmp_path / "in" / "a.csv").rename(tmp_path / "in" / "a-old.csv")
        log.write_text(HEADER + "no row\n" + rows(21, 29))
        run = bench.start()
        assert run.reaches(has(29)), run.said()
        asked = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "status", "kiln.py", "--json"]
        said = subprocess.run(asked, cwd=tmp_path, env=environ(), capture_output=True, text=True).stdout
        [source] = json.loads(said)["sources"]
        run.os_process.send_signal(signal.SIGINT)
        assert run.ended() == 0, run.said()
    finally:
        bench.clear_away()

    assert written() == list(range(29))
    assert (source["bad"], source["why"]) == (1, "3 files, all read")
