"""Every public name has a type and a docstring, and the reference shows it with its parameters and defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import holdfast as hf
from holdfast import testing
from holdfast.graph import protections

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
# Of a run: called by what starts it.
INTERNAL = {"activate", "keep", "release"}


def methods(name: str, kind: type) -> dict[str, object]:
    """Also those of the classes it is made of."""
    found: dict[str, object] = {}
    for each in kind.__mro__:
        if each.__module__.startswith("holdfast."):
            found |= {f"{name}.{word}": thing for word, thing in vars(each).items() if not word.startswith("_") and word not in INTERNAL and f"{name}.{word}" not in found}  # fmt: skip
    return {word: thing for word, thing in found.items() if inspect.isfunction(thing) or isinstance(thing, property)}


def public() -> dict[str, object]:
    found = {
        f"hf.{name}": getattr(hf, name) for name in hf.__all__ if name not in ("read", "write", "frames", "__version__")
    }
    found["hf.frames"] = protections.frames  # a package that can be called; the function behind it
    for module, prefix in ((hf.read, "hf.read"), (hf.write, "hf.write"), (testing, "holdfast.testing")):
        found |= {f"{prefix}.{name}": getattr(module, name) for name in module.__all__}
    for name in [each for each, thing in found.items() if inspect.isclass(thing)]:
        found |= methods(name, found[name])
    return found


PUBLIC = public()
CALLED = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}


def headings() -> dict[str, str]:
    """name -> (parameters) as the reference has them; methods under their class."""
    found, owner = {}, ""
    for level, text in re.findall(r"^(###|####) `([^\n]*)`$", REFERENCE, flags=re.MULTILINE):
        name, bracket, rest = text.partition("(")
        if level == "###":
            owner = name
        found[name if level == "###" else owner + name] = bracket + rest
    owner = ""
    for line in REFERENCE.splitlines():  # what typed answers can be asked
        owner = line[5:-1] if line.startswith("### `") else owner
        if asked := re.match(r"- `(\.\w+)(\([^`]*\))?`", line):
            found[owner + asked[1]] = asked[2] or ""
    return found


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_reference_has_every_public_name(name):
    assert name in headings()


@pytest.mark.parametrize("name", sorted(CALLED))
def test_the_reference_has_every_parameter_and_its_default(name):
    """A default that changed and a page that did not are worse than no page."""
    shown = headings()[name]
    parameters = [each for each in inspect.signature(CALLED[name]).parameters.values() if each.name != "self"]
    at = 0
    for each in parameters:
        word = re.compile(rf"(?<![\w.]){re.escape(each.name)}(?P<default>=)?").search(shown, at)
        assert word is not None, f"{each.name} is not in {shown}"
        assert (word["default"] is not None) == (each.default is not each.empty), f"{each.name} in {shown}"
        if each.default is not each.empty and len(repr(each.default)) <= 40 and " at 0x" not in repr(each.default):
            assert shown[word.end() :].startswith(repr(each.default)), f"{each.name}={each.default!r} in {shown}"
        at = word.end()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_says_what_it_is(name):
    thing = PUBLIC[name]
    if not callable(thing) and not isinstance(thing, property):
        thing = type(thing)  # a value: what it is says its class
    text = inspect.getdoc(thing) or ""
    of_a_dataclass = dataclasses.is_dataclass(thing) and text.startswith(f"{getattr(thing, '__name__', '')}(")

    assert text and not of_a_dataclass


@pytest.mark.parametrize("name", sorted(name for name, thing in PUBLIC.items() if not inspect.isclass(thing)))
def test_every_public_name_has_types(name):
    """An editor that knows nothing of a parameter helps nobody with it; py.typed says that it does."""
    thing = PUBLIC[name]
    if isinstance(thing, property):
        assert thing.fget.__annotations__.get("return") is not None
        return
    if not inspect.isfunction(thing):
        return  # a value
    hints = inspect.unwrap(thing).__annotations__
    taken = [each for each in inspect.signature(inspect.unwrap(thing)).parameters if each != "self"]

    assert [each for each in taken if each not in hints] == []
    assert "return" in hints


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "holdfast" / "py.typed").exists()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text()
