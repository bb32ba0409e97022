"""Finding the stream process in a user's file: FILE, or FILE:name when it holds several.

The file is run as `python FILE` would run it, its folder first on the path, but not as
__main__: nothing is started. What goes wrong in it is shown with the user's lines only.

Touches: the file itself. Imports what the file imports, no Spark of its own accord.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import re
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType

from holdfast.declare.process import StreamProcess
from holdfast.errors import Finding, HoldfastError, ProcessRefused, UsageError
from holdfast.graph.declared import did_you_mean, nearest, shown_path

__all__ = ["load"]

_EFFECT = "nothing was started, nothing was read"


def load(path: str | Path) -> StreamProcess:
    """The one process of a file, or the named one: 'ward.py', 'ward.py:night'."""
    file, name = _split(str(path))
    module = _imported(file)
    found = {each: value for each, value in vars(module).items() if isinstance(value, StreamProcess)}
    if name:
        wanted = found.get(name) or next((p for p in found.values() if p.name == name), None)
        if wanted is None:
            raise _no_process(file, f"has no stream process '{name}'", did_you_mean(name, found))
        return wanted
    distinct = {id(process): (each, process) for each, process in reversed(found.items())}
    if not distinct:
        raise _no_process(
            file, "declares no stream process", "p = hf.StreamProcess('name', frame='1 second', time='ts')"
        )
    if len(distinct) > 1:
        names = [each for each, _ in reversed(distinct.values())]
        raise UsageError(
            "HF-C018",
            "SeveralProcesses",
            f"{shown_path(str(file))} declares {len(names)} stream processes.",
            why="they are: " + ", ".join(names),
            effect=_EFFECT,
            do=f"say which: {shown_path(str(file))}:{names[0]}",
        )
    return next(iter(distinct.values()))[1]


def _split(path: str) -> tuple[Path, str]:
    text, colon, name = path.rpartition(":")
    if colon and name.isidentifier() and len(text) > 1:
        return Path(text), name
    return Path(path), ""


def _no_process(file: Path, what: str, do: str) -> UsageError:
    return UsageError("HF-C017", "NoProcess", f"{shown_path(str(file))} {what}.", effect=_EFFECT, do=do)


def _imported(file: Path) -> ModuleType:
    if not file.is_file():
        raise UsageError(
            "HF-C016",
            "ProcessFileMissing",
            f"there is no file {str(file)!r}.",
            why="it is a folder" if file.is_dir() else f"looked in {Path.cwd()}",
            effect=_EFFECT,
            do=_which_file(file),
        )
    full = file.resolve()
    name = f"holdfast_file_{full.stem}"
    if full.suffix != ".py":
        raise _no_process(file, "is not a Python file", "give a .py file")
    spec = importlib.util.spec_from_loader(name, _FromSource(name, str(full)))
    module = importlib.util.module_from_spec(spec)
    if str(full.parent) not in sys.path:
        sys.path.insert(0, str(full.parent))
    # Registered while it runs (dataclasses look themselves up), not afterwards: workers
    # cannot import it by name, so its functions must travel by value.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except ProcessRefused:
        raise
    except HoldfastError as error:
        raise error if error.where else _placed(error, full) from error.__cause__
    except (Exception, SystemExit) as error:
        raise _explained(error, full) from error
    finally:
        sys.modules.pop(spec.name, None)
    return module


class _FromSource(importlib.machinery.SourceFileLoader):
    """Always from the text. Python's cache knows a file by second and size: an edit of one digit would go unseen."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _which_file(file: Path) -> str:
    folder = file.parent if file.parent.is_dir() else Path()
    there = sorted(each.name for each in folder.glob("*.py"))
    guess = nearest(file.name, there)
    if guess:
        return f"did you mean '{folder / guess}'?"
    return "give the path of a .py file" + (f"; here are: {', '.join(there[:8])}" if there else "")


def _explained(error: BaseException, file: Path) -> HoldfastError:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if _is_users(frame.filename, file)]
    lines = [f"{shown_path(frame.filename)}:{frame.lineno}  {frame.line}" for frame in mine]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"{shown_path(error.filename)}:{error.lineno}  {(error.text or '').strip()}")
    where = "\n".join(lines) or shown_path(str(file))
    if _needs_session(error, frames):
        return ProcessRefused([_session_needed(where, any("_parse_datatype" in frame.name for frame in frames))])
    message = str(error).strip()
    return UsageError(
        "HF-C019",
        "FileRaised",
        f"{shown_path(str(file))} cannot be imported.",
        where=where,
        why=f"{type(error).__name__}: {message}" if message else type(error).__name__,
        effect=_EFFECT,
        do=_remedy(error),
    )


def _placed(error: HoldfastError, file: Path) -> HoldfastError:
    """A declaration refused deep inside (a duration, a schema, a pace) names the user's line too."""
    mine = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, file)]
    if not mine:
        return error
    where = f"{shown_path(mine[-1].filename)}:{mine[-1].lineno}"
    return type(error)(error.code, error.name, error.what, where=where, why=error.why, effect=error.effect, do=error.do)


def _is_users(filename: str, file: Path) -> bool:
    path = Path(filename)
    return (path == file or file.parent in path.parents) and not {"site-packages", "dist-packages"} & set(path.parts)


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install '{error.name.partition('.')[0]}' into this environment, or mend the import"
    mend = "mend the line; python FILE shows the whole traceback"
    if isinstance(error, AttributeError):
        where = getattr(error.obj, "__name__", "") or type(error.obj).__module__
        if where == "holdfast":
            return did_you_mean(str(error.name), dir(error.obj), "see help(holdfast)")
        if where.startswith("holdfast."):
            names = getattr(error.obj, "__all__", None) or [name for name in dir(error.obj) if not name.startswith("_")]
            return did_you_mean(str(error.name), names, mend)
    if isinstance(error, TypeError) and (found := _UNEXPECTED.match(str(error))):
        return did_you_mean(found["word"], _keywords(found["function"]), mend)
    return mend


_UNEXPECTED = re.compile(r"(?P<function>[\w.]+)\(\) got an unexpected keyword argument '(?P<word>\w+)'")


def _keywords(function: str) -> list[str]:
    """What a function of ours takes, by its name in Python's message; none if it is not ours."""
    ours = sys.modules["holdfast"]
    owner, _, name = function.rpartition(".")
    places = [StreamProcess] if owner == "StreamProcess" else [] if owner else [ours.read, ours.write, ours]
    taken = next((getattr(place, name) for place in places if hasattr(place, name)), None)
    return list(inspect.signature(taken).parameters) if callable(taken) else []


def _needs_session(error: BaseException, frames: traceback.StackSummary) -> bool:
    """F.col() without a session: a bare AssertionError from inside pyspark (or its named kin)."""
    if not frames or "pyspark" not in Path(frames[-1].filename).parts:
        return False
    text = str(error)
    return (isinstance(error, AssertionError) and not text) or any(
        mark in text for mark in ("SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_SESSION", "SparkContext")
    )


def _session_needed(where: str, for_a_type: bool) -> Finding:
    why = "F.col(), F.lit() and their like ask for a Spark session, and at import there is none"
    do = "move it into the operator's function, or declare a run-time parameter: p.param('limit', 80.0)"
    if for_a_type:
        why = "a type given as text, @F.udf('double'), is read by a Spark session, and at import there is none"
        do = "give the type itself: @F.udf(DoubleType()) of pyspark.sql.types; or move it into the operator's function"
    return Finding(
        "HF-G026",
        "SessionNeededAtImport",
        "a Spark type is read while the file is being imported."
        if for_a_type
        else "a Spark column is made while the file is being imported.",
        where=where,
        why=why,
        effect=_EFFECT,
        do=do,
    )
