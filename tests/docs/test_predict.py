"""The answers in docs/howto/predict.md are those the commands give: same model, same seed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.models.files import read_model

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "predict.md").read_text()
MODEL = re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[1]
SHOWN = re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_model_of_the_page_is_one():
    assert read_model(MODEL).name == "ward"


@pytest.mark.parametrize(("commands", "answer"), SHOWN, ids=[commands.splitlines()[-1] for commands, _ in SHOWN])
def test_the_page_shows_what_the_commands_say(commands, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ward.toml").write_text(MODEL)
    *before, command = commands.splitlines()
    for each in before:
        subprocess.run(["sh", "-c", each], check=True)
    said = CliRunner().invoke(app, command.split()[1:])

    assert said.stdout == answer
