"""Whether protections can survive what they are for: cycles, other hosts, folders, promises.

HF-G016 plain ecoc on a cycle, HF-G029 fewer other hosts than copies, HF-G032 folders that
are lost together; warnings HF-L001 a promise that the loss of a host would break, HF-L010 one
that the loss of the state folder's disk would break, HF-L011 one that a gap would break for good.

Pure: a graph in, findings out.
"""

from __future__ import annotations

import linecache
import os.path
import re
from collections.abc import Iterator
from itertools import combinations
from urllib.parse import unquote

from holdfast.errors import Finding
from holdfast.graph.durations import write_ms
from holdfast.graph.model import Graph
from holdfast.graph.promises import Loses
from holdfast.graph.protections import Interval
from holdfast.graph.refilling import refills_us
from holdfast.graph.wellformed import EFFECT

__all__ = ["check_surviving"]


def check_surviving(graph: Graph) -> Iterator[Finding]:
    yield from _cycles(graph)
    yield from _copies(graph)
    yield from _folders(graph)
    yield from _uncovered(graph)
    yield from _on_one_disk(graph)
    yield from _never_right_again(graph)


def _cycles(graph: Graph) -> Iterator[Finding]:
    for members in graph.cycles():
        for name in members:
            operator = graph.operator(name)
            protection = graph.protection_of(operator)
            if protection.durability == "ecoc" and not protection.extended:
                yield Finding(
                    "HF-G016",
                    "PlainEcocOnCycle",
                    f"operator '{name}' stands on a cycle and is protected by plain ecoc.",
                    where=f"{operator.line}, cycle {' -> '.join((*members, members[0]))}",
                    why="each waits for the other's acknowledgement before its checkpoint is stored: none ever is",
                    effect=EFFECT,
                    do=f"hf.ecoc(every={_written(protection.every)}, extended=True)",
                )
                break


def _written(every: Interval) -> str:
    return f"hf.{every.unit}({every.count})" if every.unit != "ms" else f"'{write_ms(every.count)}'"


def _copies(graph: Graph) -> Iterator[Finding]:
    """A copy lies on another host: there must be as many."""
    copies = 1 if graph.backup is None else graph.backup.copies
    others = len(graph.homes) - 1
    if graph.is_protected and not (graph.backup and graph.backup.urls) and copies > others:
        there = "host" if len(graph.homes) == 1 else "hosts"
        yield Finding(
            "HF-G029",
            "NoOtherHost",
            f"stream process '{graph.name}' has {len(graph.homes)} {there}, and {copies} {'copy' if copies == 1 else 'copies'} "
            "of every checkpoint must lie elsewhere.",
            where=graph.line,
            why="a copy on a unit's own host would be lost with it, so each copy needs another host",
            effect=EFFECT,
            do=f"declare {copies + 1} hosts or more, or keep the copies elsewhere: backup=hf.backup('/mnt/other')",
        )


def _folders(graph: Graph) -> Iterator[Finding]:
    """Two folders of which one lies in the other are lost together. Undeclared hosts lie in the state folder."""
    state = os.path.realpath(
        os.path.join(graph.base, graph.state) if graph.state else os.path.join(".holdfast", graph.name)
    )
    places = [(f"host '{host.name}'", os.path.realpath(host.folder)) for host in graph.hosts if host.folder is not None]
    places += [(f"backup '{url}'", _place(url)) for url in (graph.backup.urls if graph.backup else ())]
    for (one, there), (other, here) in combinations([*places, ("the state folder", state)], 2):
        if _is_within(here, there) or _is_within(there, here):
            what = f"{one} and {other} lie in one folder." if there == here else (
                f"{one} lies in {other}." if _is_within(there, here) else f"{other} lies in {one}."
            )  # fmt: skip
            yield Finding(
                "HF-G032",
                "FolderShared",
                what,
                where=graph.line,
                why="what is lost with the one is lost with the other: no copy would be left",
                effect=EFFECT,
                do="give each host and each backup a folder of its own, best on a disk of its own",
            )


def _place(url: str) -> str:
    """A folder of this machine in one spelling; anything else as it is written."""
    scheme, told, path = url.partition("://")
    if not told or scheme in ("file", "local"):
        return os.path.realpath(unquote(path) if told else url)
    return url.rstrip("/")


def _is_within(place: str, other: str) -> bool:
    return place == other or place.startswith(other.rstrip("/") + "/")


def _uncovered(graph: Graph) -> Iterator[Finding]:
    """A promise about loss whose operators would lose frames together with their host."""
    for sink in graph.sinks:
        said = [promise for promise in sink.promises if isinstance(promise, Loses)]
        kinds: dict[str, list[str]] = {"none": [], "checkpoint": []}
        for operator in graph.above(sink.stream):
            kinds.get(graph.protection_of(operator).durability, []).append(operator.name)
        why = (
            [f"{', '.join(kinds['none'])}: no protection keeps their state and frames anywhere else"]
            if kinds["none"]
            else []
        )
        if kinds["checkpoint"]:
            why.append(
                f"{', '.join(kinds['checkpoint'])}: hf.checkpoint keeps state, not the frames since the last one"
            )
        if said and why:
            yield Finding(
                "HF-L001",
                "HostNotCovered",
                f"output '{sink.name}' promises {', '.join(map(str, said))}; the loss of a host is not covered.",
                where=f"{sink.line}, sink '{sink.name}'",
                why="; ".join(why),
                effect="kept through restarts, crashes and kills on this host; what the host's folder held is lost with it",
                do=f"{_variable(graph, sink.line)}.protect(hf.ecoc(every='5 seconds'))",
                warning=True,
            )


def _variable(graph: Graph, line: str) -> str:
    """The user's name for the process, as it stands in the line that declares a sink."""
    file, _, number = line.rpartition(":")
    # A line names its file as seen from where the user stands, or by its bare name.
    for path in (os.path.join(graph.base, os.path.basename(file)), file):
        text = linecache.getline(path, int(number)) if number.isdigit() and os.path.exists(path) else ""
        if found := re.search(r"([A-Za-z_][\w.]*)\.sink\(", text):
            return found[1]
    return "process"


def _on_one_disk(graph: Graph) -> Iterator[Finding]:
    """Operators whose hosts may all be lost, below a source whose only copy is the log in the state folder."""
    for sink in graph.sinks:
        said = [promise for promise in sink.promises if isinstance(promise, Loses)]
        above = graph.above(sink.stream)
        if not said or any(graph.protection_of(operator).durability in ("none", "checkpoint") for operator in above):
            continue  # HF-L001 says more
        streams = {edge.stream for operator in above for edge in operator.inputs}
        live = [
            each.name for each in graph.sources if each.name in streams and not getattr(each.reader, "reliable", True)
        ]
        if live:
            yield Finding(
                "HF-L010",
                "RestsOnOneDisk",
                f"output '{sink.name}' promises {', '.join(map(str, said))} and rests on the disk of the state folder.",
                where=f"{sink.line}, sink '{sink.name}'",
                why=f"{', '.join(live)} cannot be read again from outside: once a sender has its answer, the only copy is the "
                "source's log in the state folder, and the state folder is not a host: no backup covers it",
                effect="the loss of any host is survived; with the disk of the state folder all that the sources had "
                "acknowledged and nobody had written is lost",
                do="put the state folder on storage that survives a disk (state='/mnt/mirrored/NAME'), or let the senders keep "
                "what they sent and read it as files or from a broker that keeps it",
                warning=True,
            )


def _never_right_again(graph: Graph) -> Iterator[Finding]:
    """An output that may lose something, above which one gap marks every later frame: its share of wrong rows only grows."""
    for sink in graph.sinks:
        said = [promise for promise in sink.promises if isinstance(promise, Loses) and promise.level != "LOLE"]
        above = graph.above(sink.stream)
        lossy = [each for each in above if graph.protection_of(each).durability in ("none", "checkpoint")]
        if not said or not lossy:
            continue
        below = {each.name for each in lossy}
        for operator in graph.order:  # upstream first
            if any(
                (maker := graph.producer_of(edge.stream)) is not None and maker.name in below
                for edge in operator.inputs
            ):
                below.add(operator.name)
        never = [each.name for each in above if each.name in below and refills_us(each, graph.frame_ms) is None]
        if never:
            yield Finding(
                "HF-L011",
                "GapNeverEnds",
                f"output '{sink.name}' promises {', '.join(map(str, said))}; after one lost host it is marked as tainted for ever.",
                where=f"{sink.line}, sink '{sink.name}'",
                why=f"the state of {', '.join(never)} never refills by itself, and {', '.join(each.name for each in lossy)} may lose "
                "frames with a host",
                effect="nothing while no host is lost; after that every frame counts as wrong",
                do="say stabilises='5 minutes' for it if its answers are right again so long after a gap, or protect what is above: "
                f"{_variable(graph, sink.line)}.protect(hf.ecoc(every='5 seconds'))",
                warning=True,
            )
