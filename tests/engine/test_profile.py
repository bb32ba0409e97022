"""Settings: who wins, and that nothing misspelt holds in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.engine.profile import KEYS, Profile, load_profile
from holdfast.engine.trusted import distrusted
from holdfast.errors import UsageError
from holdfast.graph.model import Graph

TOML = """
[default]
heap = "1g"
rate = "fast"
state = "kept"

[profile.ward]
heap = "4g"
metrics = "127.0.0.1:9464"
values = "hide"
"""


def loaded(tmp_path, name=None, toml=TOML, **environ):
    (tmp_path / "holdfast.toml").write_text(toml)
    return load_profile(name, environ=environ, here=tmp_path)


def test_the_environment_wins_over_the_profile_over_the_default(tmp_path):
    assert loaded(tmp_path).heap == "1g"
    assert loaded(tmp_path, "ward").heap == "4g"
    assert loaded(tmp_path, "ward", HOLDFAST_HEAP="8g").heap == "8g"
    assert loaded(tmp_path, HOLDFAST_PROFILE="ward").metrics == "127.0.0.1:9464"
    assert loaded(tmp_path, "ward", HOLDFAST_PROFILE="other").heap == "4g"


def test_an_argument_wins_over_all(tmp_path, monkeypatch):
    """The last word is the one typed now."""
    from holdfast.declare.process import StreamProcess
    from holdfast.engine.run import starting as subject

    (tmp_path / "holdfast.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_RATE", "10x")
    asked = []
    monkeypatch.setattr(subject, "start_graph", lambda graph, **settings: asked.append((graph, settings)))
    process = StreamProcess("kiln", frame="1 second", state="declared")

    subject.start(process)
    subject.start(process, rate="as recorded", state=tmp_path / "given", profile="ward")

    (_, first), (graph, second) = asked
    assert (first["rate"], first["state"]) == ("10x", str(tmp_path / "kept"))
    assert (second["rate"], second["state"]) == ("as recorded", tmp_path / "given")
    assert graph.values == "hide"


def test_without_a_file_nothing_is_said(tmp_path):
    assert load_profile(environ={}, here=tmp_path) == Profile()


def test_the_file_is_here_or_beside_the_process_or_named(tmp_path):
    beside, here, named = (tmp_path / name for name in ("beside", "here", "named"))
    for folder, heap in ((beside, "1g"), (named, "3g")):
        folder.mkdir()
        (folder / "holdfast.toml").write_text(f'[default]\nheap = "{heap}"\n')
    here.mkdir()

    assert load_profile(environ={}, here=here, beside=beside).heap == "1g"
    (here / "holdfast.toml").write_text('[default]\nheap = "2g"\n')
    assert load_profile(environ={}, here=here, beside=beside).heap == "2g"
    assert load_profile(environ={"HOLDFAST_CONFIG": str(named / "holdfast.toml")}, here=here).heap == "3g"
    with pytest.raises(UsageError, match="HF-E022"):
        load_profile(environ={"HOLDFAST_CONFIG": "gone.toml"}, here=here)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[default]\nheep = "1g"', "did you mean 'heap'"),
        ('[profile.x]\nmetric = "127.0.0.1:1"', "did you mean 'metrics'"),
        ('[defaults]\nheap = "1g"', "did you mean 'default'"),
        ("[default]\nheap = 2", "write heap"),
        ('[default]\nheap = "lots"', "write heap"),
        ('[default]\nvalues = "hidden"', "show"),
        ("[default]\nmetrics_open = 1", "true or false"),
        ("[default", "TOML"),
        ("default = 3", "no section"),
    ],
)
def test_what_is_misspelt_is_refused_even_in_a_profile_nobody_asked_for(tmp_path, toml, words):
    with pytest.raises(UsageError, match="HF-E022") as caught:
        loaded(tmp_path, toml=toml)
    assert words in str(caught.value)


def test_variables_and_profiles_are_checked_too(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'HOLDFAST_HEAP'"):
        loaded(tmp_path, HOLDFAST_HEEP="1g")
    with pytest.raises(UsageError, match="did you mean 'ward'"):
        loaded(tmp_path, "wrad")
    with pytest.raises(UsageError, match="no holdfast.toml"):
        load_profile("ward", environ={}, here=tmp_path / "empty")
    assert (
        loaded(
            tmp_path, HOLDFAST_HEAP="", HOLDFAST_DISK_RESERVE="5", HOLDFAST_TEST_PG="x", HOLDFAST_METRICS_OPEN="true"
        ).metrics_open
        is True
    )


def test_every_value_says_where_it_comes_from(tmp_path):
    origins = dict(loaded(tmp_path, "ward", HOLDFAST_RATE="5").origins)

    assert origins["rate"] == "HOLDFAST_RATE"
    assert origins["heap"].endswith("[profile.ward]")
    assert origins["state"].endswith("[default]")


def test_hiding_can_be_added_from_outside_and_not_taken_away():
    hiding = Graph("kiln", 1000, "ts", 0, values="hide")

    assert Profile(values="show").applied_to(hiding).values == "hide"
    assert Profile(values="hide").applied_to(Graph("kiln", 1000, "ts", 0)).values == "hide"


def test_alerts_are_told_instead_of_what_was_declared():
    graph = Graph("kiln", 1000, "ts", 0, on_degraded="page-somebody")

    assert Profile().applied_to(graph).on_degraded == "page-somebody"
    assert Profile(alerts="http://127.0.0.1:8080/alert").applied_to(graph).on_degraded == "http://127.0.0.1:8080/alert"


def test_the_howto_lists_every_key():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "howto" / "config.md").read_text()

    assert [key for key in KEYS if f"`{key}`" not in page] == []


def others_can_write(path):
    path.chmod(path.stat().st_mode | 0o002)


def another_owns(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, -1)


@pytest.mark.parametrize("make", [others_can_write, another_owns])
@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_file_that_somebody_else_can_have_written_is_ignored_and_named(tmp_path, make, what):
    """`alerts` is a command: in the temporary folder it would be anybody's, run as the user."""
    elsewhere, beside = tmp_path / "tmp", tmp_path / "mine"
    for folder in (elsewhere, beside):
        folder.mkdir(mode=0o755)
        (folder / "holdfast.toml").write_text(f'[default]\nalerts = "sh -c {folder.name}"\n')
        (folder / "holdfast.toml").chmod(0o644)
    make(elsewhere if what == "folder" else elsewhere / "holdfast.toml")

    found = load_profile(environ={}, here=elsewhere, beside=beside)

    assert found.alerts == "sh -c mine"
    assert len(found.notes) == 1 and str(elsewhere / "holdfast.toml") in found.notes[0]
    named = found.notes[0].partition("HOLDFAST_CONFIG=")[2]  # what it says to do
    assert load_profile(environ={"HOLDFAST_CONFIG": named}, here=elsewhere).alerts == "sh -c tmp"
    with pytest.raises(UsageError, match="was ignored"):
        load_profile("ward", environ={}, here=elsewhere)


def test_a_file_of_ones_own_or_of_roots_is_taken(tmp_path):
    assert loaded(tmp_path).notes == ()
    assert distrusted(Path("/etc/passwd")) == ""
    (tmp_path / "holdfast.toml").chmod(0o664)
    assert distrusted(tmp_path / "holdfast.toml") == ""  # the user's private group, or root's
