"""Small files with a check: damaged ones are errors with a code, those of the version before are read."""

from __future__ import annotations

import json
import os

import pytest

from holdfast.engine.state_folder import StateFolder
from holdfast.errors import StateRefused
from holdfast.journals.journal import Journal
from holdfast.journals.notes import as_note, as_word, note_in, word_in

FIELDS = {"n": 12, "deep": {"a": [1, 2.5, None], "b": "x"}, "4": True}


def flipped(text, bit):
    data = bytearray(text.encode())
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_no_single_bit_changes_what_a_note_or_a_word_says():
    for text, read, right in (
        (as_note(FIELDS), note_in, FIELDS),
        (as_word(417), lambda data: word_in(data.decode()), "417"),
    ):
        assert read(text.encode()) == right
        found = 0
        for bit in range(len(text) * 8):
            try:
                said = read(flipped(text, bit))
            except ValueError:
                found += 1
            else:
                assert said == right or {key: said.get(key) for key in right} == right
        assert found > len(text) * 7


def test_no_cut_changes_what_a_note_or_a_word_says():
    """`=41` of `=417 ...` is not epoch 41."""
    for text, read, right in ((as_note(FIELDS), note_in, FIELDS), (as_word(417), word_in, "417")):
        for length in range(len(text) - 1):
            with pytest.raises(ValueError):
                read(text[:length])
        assert read(text.rstrip("\n")) == right


def test_those_of_the_version_before_are_read():
    assert note_in(json.dumps(FIELDS)) == FIELDS
    assert word_in("417") == word_in("417\n") == "417"


@pytest.mark.parametrize("content", ["", "1x", "=12 00000000\n", "\0\0\0"])
def test_a_damaged_epoch_has_a_code_and_what_it_says_to_do_works(tmp_path, content):
    """It was a bare ValueError, at every start."""
    folder = StateFolder(tmp_path)
    folder.acquire("kiln")
    folder.release()
    Journal(folder.unit("hot"), "commits").append({"n": 1, "epoch": 7})
    (tmp_path / "epoch").write_text(content)
    for _ in range(2):
        with pytest.raises(StateRefused, match="HF-R042") as raised:
            StateFolder(tmp_path).acquire("kiln")
    assert os.system(raised.value.do.split(": ", 1)[1]) == 0
    again = StateFolder(tmp_path)
    assert again.acquire("kiln") == 1008 == again.epoch
    assert again.raise_epoch() == 1009


@pytest.mark.parametrize("content", ["", "{", '{"process": "kiln", "check": "00000000"}', "[]"])
def test_a_damaged_deployment_has_a_code(tmp_path, content):
    (tmp_path / "deployment.json").write_text(content)
    with pytest.raises(StateRefused, match="HF-R042"):
        StateFolder(tmp_path).deployment()
