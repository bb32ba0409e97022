"""A catalogue written before a word was renamed still holds: its cuts are not void for the sake of a word."""

from __future__ import annotations

import json

import holdfast as hf


def test_a_catalogue_keeps_the_word_it_was_written_with(driver, tmp_path):
    """`missing="error"` is called "fail" now; another word in the setting would void what was cut before."""
    (tmp_path / "a.jsonl").write_text('{"ts": "2026-01-05T06:00:00Z", "zone": 1, "celsius": 1.5}\n')
    driver.frames(hf.read.files("a.jsonl", missing="fail"))
    kept = [
        json.loads(line[line.index("{") :]) for line in (tmp_path / "state" / "files.jsonl").read_text().splitlines()
    ]

    assert [each["setting"]["options"]["missing"] for each in kept if "setting" in each] == ["error"]
