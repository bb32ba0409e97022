"""From what Spark throws to an error a person can use.

A worker's exception reaches the driver as text inside text. If it is one of ours,
its fields are read back; if the user's code raised, there or while its frame was planned,
the traceback is cut to the user's own lines; if the JVM is gone, that is said. What may
be over by the next try is marked (`engine.unit.passing`).
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.flow.disks import full_at_start, full_while_running, is_full
from holdfast.engine.unit.passing import may_pass, plan_is_refused, raised_may_pass
from holdfast.errors import FrameDiffers, HoldfastError, OperatorError, SourceError, UnitError
from holdfast.graph.model import Graph

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = [
    "explain", "explain_start", "frames_lost", "host_lost", "near_damaged", "our_error", "same_again", "sql_error", "stalled",
    "user_lines",
]  # fmt: skip

_OURS = re.compile(r"(HF-[A-Z]\d{3}) (?:warning )?(\w+): (.*)")
_FIELD = re.compile(r"  (where|why|effect|do)\s+(.*)")
_KINDS = {"S": SourceError, "F": FrameDiffers, "O": OperatorError}
_OF_ROWS = frozenset({"HF-U090"})  # raised by what a row says, not by how the unit does: on_error decides
_USERS = frozenset({"HF-U070", "HF-U071"})  # by its code one of a unit; what it tells of is the user's function
_PLACE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
# SQLSTATE class 22 is "data exception", 21 "cardinality violation", 23 "integrity constraint violation" (a key twice in a
# map): a row the expression cannot bear. P0001 is what raise_error() and assert_true() say.
_SQL_ERROR = re.compile(r"(\[[A-Z][A-Z0-9_.]*\][^\n]*)SQLSTATE: (?:2[123]\w{3}|P0001)")
# What Spark's analyser says, however it is wrapped on its way.
_REFUSED = re.compile(r"(?:Extended)?AnalysisException:?\s+([^\n]+)")
_JVM_GONE = frozenset({"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "EOFError"})
_PLAN = Path(__file__).with_name("plan.py")  # calls the user's functions
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+\w+(?:Exception|Error): ")
_CALLING = "An error occurred while calling "
# As installed, or as Spark carries them: a user's folder may have any of these names.
_FOREIGN = re.compile(
    r"^<frozen|pyspark\.zip|py4j-[\d.]+-src\.zip|/python/pyspark/"
    r"|/(?:site|dist)-packages/(?:pyspark|holdfast|py4j|cloudpickle|pandas|pyarrow)/"
)
_HERE = f"{Path(__file__).parents[2]}/"


def explain(
    graph: Graph, unit: str, query: StreamingQuery | None, error: BaseException | None, committed: int
) -> HoldfastError:
    """The one error that says why a unit's query ended."""
    error = error if error is not None else _query_error(query)
    text = str(error) if error is not None else "the query stopped without an error"
    where = f"stream process {graph.name!r}, unit {unit!r}, frame {committed + 1}"
    effect = f"frames up to {committed} are sealed and stay; frame {committed + 1} was not; nothing is lost"
    if is_full(error) or is_full(text):
        return full_while_running(where, error if isinstance(error, OSError) else text, effect)
    if isinstance(error, HoldfastError):
        return error
    ours = our_error(text)
    if ours is not None:
        return _marked(ours, ours.why.partition("\n")[0]) if ours.code == "HF-O001" else ours
    raised = user_lines(text) or _raised_here(error)
    if not raised and _jvm_is_gone(error, text):
        return UnitError(
            "HF-U030",
            "JvmDied",
            "Spark's Java process is gone.",
            where=where,
            why=text.strip().splitlines()[0][:300] if text.strip() else "it does not answer",
            effect=effect,
            do="run again: it goes on from there; if it comes back, see logs/jvm.log in the state folder "
            "(killed for want of memory?)",
        )
    if "Python worker exited unexpectedly" in text or "Python worker is terminated" in text:
        return UnitError(
            "HF-U033",
            "WorkerDied",
            f"a Python worker of unit {unit!r} died each time its task was tried.",
            where=where,
            why="it was killed, ran out of memory, or native code of the operator crashed",
            effect=effect,
            do="it is started again by itself; if it comes back, look for what kills it (dmesg, memory, native code)",
        )
    if not raised and (refused := _refused(error, text)):
        return OperatorError(
            "HF-U071",
            "PlanRefused",
            f"Spark refused the plan of unit {unit!r}: {refused[:200]}",
            where=where,
            why="it is an error of the plan, met before a row was read: it comes again in the same way",
            effect=effect,
            do="correct the operator and run again: the frame is taken anew",
        )
    raised = raised or sql_error(text)
    if raised:
        met: HoldfastError = OperatorError(
            "HF-O001",
            "OperatorRaised",
            f"an operator of unit {unit!r} raised: {raised[-1].strip()}",
            where=where,
            why="\n".join(raised),
            effect=effect,
            do="correct the operator and run again: the frame is taken anew",
        )
        return _marked(met, raised[-1])
    met = UnitError(
        "HF-U031",
        "UnitDied",
        f"the query of unit {unit!r} ended: {_first_line(text, error)}",
        where=where,
        why=_first_line(text, error),
        effect=effect,
        do="it is started again by itself; if it was given up, remove the cause (logs/spark.log in the state folder has the "
        "whole story) and run again: it goes on from there",
    )
    met.may_pass = may_pass(error, text)
    return met


def same_again(unit: str, frame: int, error: HoldfastError, times: int) -> UnitError:
    """What a unit is given up with when a further try would meet the same."""
    return UnitError(
        "HF-U074",
        "SameAgain",
        f"unit {unit!r} met the same error {times} times at frame {frame}: {error.what}",
        where=error.where,
        why="\n".join(
            [
                *(() if error.why in error.what else (error.why,)),
                "nothing was made in between: it does not pass by itself",
            ]
        ),
        effect=error.effect,
        do="running again alone meets it again: change what the error names (the operator, its settings, what it reads; "
        "logs/spark.log in the state folder has the whole story), then run again: the unit goes on with this frame",
    )


def stalled(graph: Graph, unit: str, committed: int, seconds: float) -> UnitError:
    return UnitError(
        "HF-U032",
        "UnitStalled",
        f"unit {unit!r} has worked on one frame for {seconds:.0f} s.",
        where=f"stream process {graph.name!r}, unit {unit!r}, frame {committed + 1}",
        why="a frame in work for so long counts as a death: restart=hf.restarts(stalled_after=...)",
        effect=f"frames up to {committed} are sealed and stay; the unit is started anew with frame {committed + 1}; "
        "nothing is lost",
        do="if frames of this process may take so long, declare a longer stalled_after; else look for a loop in the "
        "operator",
    )


def host_lost(graph: Graph, unit: str, host: str, stored: int) -> UnitError:
    return UnitError(
        "HF-U034",
        "HostLost",
        f"host {host!r} has lost its folder, and with it unit {unit!r}.",
        where=f"stream process {graph.name!r}, unit {unit!r}",
        why="its mark host.json is gone, or is that of another life",
        effect=f"the unit is put back to its newest checkpoint (frame {stored} at least) and makes the frames after it again",
        do="nothing for the data; look why the folder went away",
    )


def near_damaged(graph: Graph, unit: str, host: str, error: HoldfastError) -> UnitError:
    return UnitError(
        "HF-U035",
        "NearDamaged",
        f"what host {host!r} has of unit {unit!r} cannot be used: {error.what}",
        where=error.where or f"stream process {graph.name!r}, unit {unit!r}",
        why=error.why,
        effect="the unit is put back to its newest checkpoint and makes the frames after it again; nothing is lost",
        do="nothing for the data; look at the disk",
    )


def frames_lost(graph: Graph, unit: str, host: str, error: HoldfastError | None) -> UnitError:
    return UnitError(
        "HF-U036",
        "FramesLost",
        f"sealed frames of unit {unit!r} are missing or damaged on host {host!r}.",
        where=error.where if error is not None else f"stream process {graph.name!r}, unit {unit!r}",
        why="" if error is None else " ".join(filter(None, (error.what, error.why))),
        effect="the unit is put back to its newest checkpoint and makes the frames after it again; consumers and sinks keep "
        "what they have",
        do="nothing for the data; look at the disk",
    )


def explain_start(graph: Graph, error: BaseException) -> HoldfastError | None:
    """A better error for a start that failed because the JVM is gone; None for other reasons."""
    if is_full(error):
        return full_at_start(graph.name, error)
    if isinstance(error, HoldfastError) or not _jvm_is_gone(error, str(error)):
        return None
    return UnitError(
        "HF-U030",
        "JvmDied",
        "Spark's Java process is gone.",
        where=f"stream process {graph.name!r}, before its first frame",
        why=_first_line(str(error), error),
        effect="nothing was started; sealed frames and sinks are as they were",
        do="run again; if it comes back, see logs/jvm.log in the state folder (killed for want of memory?)",
    )


def our_error(text: str) -> HoldfastError | None:
    """An error of ours that came through as text."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = _OURS.search(line)
        if found is None:
            continue
        fields: dict[str, str] = {}
        current = ""
        for below in lines[at + 1 :]:
            field = _FIELD.match(below)
            if field is not None:
                current = field[1]
                fields[current] = field[2]
            elif current and below.startswith(" " * 10):
                fields[current] += "\n" + below.strip()
            else:
                break
        kind = OperatorError if found[1] in _OF_ROWS | _USERS else _KINDS.get(found[1][3], UnitError)
        return kind(found[1], found[2], found[3], **fields)
    return None


def user_lines(text: str) -> list[str]:
    """The part of a Python traceback that lies in the user's files, and the exception itself."""
    if "Traceback (most recent call last)" not in text:
        return []
    lines = text.split("Traceback (most recent call last)")[-1].splitlines()
    kept: list[str] = []
    mine = False
    last = ""
    for line in lines[1:]:
        place = _PLACE.match(line)
        if place is not None:
            mine = not place["file"].startswith(_HERE) and _FOREIGN.search(place["file"]) is None
            if mine:
                kept.append(f"{place['file']}:{place['line']} in {place['name']}")
        elif line.startswith("    "):
            if mine and set(line.strip()) - set("^~ "):
                kept.append("    " + line.strip())
        elif line.strip() and not line.startswith((" ", "\t")):
            last = line.strip()
            break
    return [*kept, last] if last else kept


def sql_error(text: str) -> list[str]:
    """What an SQL expression raised on a row (a division by zero, a cast): the user's, though no Python is in it."""
    found = _SQL_ERROR.search(text)
    return [found[1].strip()[:300]] if found is not None else []


def _marked(error: HoldfastError, raised: str) -> HoldfastError:
    """What the user's code raised; with other advice if it may pass."""
    if not raised_may_pass(raised):
        return error
    told = OperatorError(
        error.code,
        error.name,
        error.what,
        where=error.where,
        why=error.why,
        effect=error.effect,
        do="it is started again by itself; if it was given up, see to what the operator could not reach and run again: the "
        "frame is taken anew",
    )
    told.may_pass = True
    return told


def _raised_here(error: BaseException | None) -> list[str]:
    """What the user's function raised while its frame was planned: in this process, so the traceback is at hand."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    called = [
        at for at, frame in enumerate(frames[:-1]) if (frame.name, Path(frame.filename)) == ("call_operator", _PLAN)
    ]
    if not called or Path(frames[called[-1] + 1].filename).is_relative_to(_PLAN.parents[2]):
        return []
    if type(error).__name__ in _JVM_GONE and "/py4j/" in frames[-1].filename:
        return []  # it asked Spark, which is no longer there
    return user_lines("".join(traceback.format_exception(error)))


def _refused(error: BaseException | None, text: str) -> str:
    """What Spark said, if it refused the plan."""
    if may_pass(error, text):
        return ""
    if plan_is_refused(error):
        return _first_line(text, error)
    found = _REFUSED.search(text)
    return "" if found is None else found[1].strip()


def _query_error(query: StreamingQuery | None) -> BaseException | None:
    if query is None:
        return None
    try:
        return query.exception()
    except Exception as unreachable:
        return unreachable


def _jvm_is_gone(error: BaseException | None, text: str) -> bool:
    return (
        type(error).__name__ in _JVM_GONE
        or "Connection refused" in text
        or "Answer from Java side is empty" in text
        or "while sending or receiving" in text
    )


def _first_line(text: str, error: BaseException | None = None) -> str:
    # py4j says first what it was about to call, and then what came of it.
    lines = [line.strip(": ") for line in text.splitlines() if line.strip() and not line.startswith(_CALLING)]
    said = _JAVA_CLASS.sub("", lines[0]) if lines else ""
    is_java = (bool(lines) and said != lines[0]) or hasattr(error, "getCondition")
    kind = "" if error is None or is_java else f"{type(error).__name__}: "
    return f"{kind}{said[:300]}" if lines else kind.rstrip(": ") or "it does not say why"
