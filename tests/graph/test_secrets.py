"""A secret is read from where it is kept, and never read by anybody else."""

from __future__ import annotations

import pickle

import pytest

from holdfast import redaction
from holdfast.errors import Finding, OperatorError, SinkError, UsageError
from holdfast.graph.secrets import secret

VALUE = "hunter2-but-longer"


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    redaction.forget_all()


def test_from_the_environment_or_a_file(monkeypatch, tmp_path):
    (tmp_path / "pw").write_text(f"{VALUE}\n")
    monkeypatch.setenv("PG_FILE", str(tmp_path / "pw"))
    assert secret("PG").open() == VALUE
    monkeypatch.setenv("PG", "nearer")
    assert secret("PG").open() == "nearer"


def test_a_missing_one_is_named(monkeypatch):
    monkeypatch.delenv("PG", raising=False)
    with pytest.raises(UsageError, match="HF-C009"):
        secret("PG").open()
    monkeypatch.setenv("PG_FILE", "/nowhere/pw")
    with pytest.raises(UsageError, match="PG_FILE names /nowhere/pw"):
        secret("PG").open()


def test_what_is_carried_is_the_name(monkeypatch):
    monkeypatch.setenv("PG", VALUE)
    made = secret("PG")
    made.open()

    assert VALUE not in repr(made) + str(made) + f"{made}"
    assert VALUE.encode() not in pickle.dumps(made)


@pytest.mark.parametrize("shape", ["{}", "postgresql://ward:{}@db/ward", "host=db user=ward password={} dbname=ward"])
def test_no_error_shows_it_whoever_wrote_the_text(monkeypatch, shape):
    """Drivers quote what they were given, and the address as a whole is not the only way to quote a password."""
    monkeypatch.setenv("PG", shape.format(VALUE))
    secret("PG").open()

    error = SinkError(
        "HF-K004", "SinkNotOpened", f"no answer with {VALUE}", where=f"at {VALUE}", why=f"FATAL: {VALUE}", do=VALUE
    )
    finding = Finding("HF-E012", "Defect", f"KeyError: {VALUE}")

    for text in (
        str(error),
        repr(error),
        error.why,
        error.what,
        error.where,
        error.do,
        str(finding),
        str(pickle.loads(pickle.dumps(error))),
    ):
        assert VALUE not in text
    assert "hf.secret('PG')" in str(error)


def test_a_password_that_is_quoted_for_an_address_is_found_in_both_forms(monkeypatch):
    monkeypatch.setenv("PG", "postgresql://ward:p%40ss%2Fword@db/ward")
    secret("PG").open()

    assert "p@ss/word" not in redaction.redacted("authentication failed with p@ss/word")
    assert "p%40ss%2Fword" not in redaction.redacted("in p%40ss%2Fword")


HIDDEN = (
    OperatorError,
    dict(
        why="ward.py:12 in pulse\n    return 1 / row.mv\nValueError: patient Anna has 98.6",
        where="unit 'pulse', frame 12",
    ),
)


def test_hidden_values_leave_errors_about_rows(monkeypatch):
    """The people who keep a ward's process going are not those who may read its patients' data."""
    redaction.hide_values({"pulse", "mv"})
    kind, fields = HIDDEN
    error = kind(
        "HF-O001", "OperatorRaised", "an operator of unit 'pulse' raised: ValueError: patient Anna has 98.6", **fields
    )

    assert "Anna" not in str(error)
    assert "98.6" not in str(error)
    assert "ward.py:12 in pulse\n" in error.why
    assert "return 1 / row.mv" in error.why
    assert "unit 'pulse'" in error.what
    assert "frame 12" in error.where


@pytest.mark.parametrize(
    ("what", "kept", "gone"),
    [
        ("row 3 of column 'mv' holds 'Anna', which is no double.", "row 3 of column 'mv'", "Anna"),
        ("key 'mv' is null in 2 of 40 rows of frame 12.", "rows of frame 12", "??"),
        ("-73.5 is out of range in frame 8.", "in frame 8", "73.5"),
    ],
)
def test_names_and_places_stay_values_go(what, kept, gone):
    redaction.hide_values({"mv"})
    text = SinkError("HF-K008", "KeyIsNull", what, why="the driver says: DETAIL: (Anna, 98.6)").finding

    assert kept in text.what
    assert gone not in str(text)
    assert "98.6" not in str(text)


def test_errors_about_declarations_stay_whole():
    redaction.hide_values({"x"})

    assert "'celsius'" in str(UsageError("HF-C002", "NotASchema", "no type 'celsius'.", why="it is 'dobule'"))


def test_values_are_shown_unless_hidden():
    kind, fields = HIDDEN

    assert "Anna" in str(kind("HF-O001", "OperatorRaised", "raised: ValueError: Anna", **fields))
