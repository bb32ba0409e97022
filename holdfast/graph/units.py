"""Cutting a graph into units: what runs as one query, fails, moves and is restored together.

Operators are taken upstream first; each joins the units of its producers unless
something parts them:

- a protection, Spark settings, a `unit=` word or `apart=True` of its own;
- a stateful operator ends its unit: only row-wise built-ins (filter, map, union) follow
  it inside, in one line, since Spark would run the state once per branch;
- an operator over the stream reads sealed frames only, so nothing of its unit comes before;
- a unit that would wait for a frame which waits for the unit itself.

The cut depends on the graph alone, so a restart finds the same units.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.graph.model import STATELESS_BUILT_IN, Graph, Operator
from holdfast.graph.protections import Protection

__all__ = ["Unit", "UnitInput", "cut"]


@dataclass(frozen=True, slots=True)
class UnitInput:
    stream: str
    feedback_frames: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    name: str  # its last operator's
    operators: tuple[str, ...]  # upstream first
    stream_part: tuple[str, ...]  # in the streaming plan
    frame_part: tuple[str, ...]  # in foreachBatch, per frame
    inputs: tuple[UnitInput, ...]
    outputs: tuple[str, ...]  # streams that leave it: to another unit, a sink or a feedback edge
    why: str
    protect: Protection
    host: str | None = None


@dataclass
class _Group:
    operators: list[Operator]
    tail: set[str] = field(default_factory=set)  # streams at its end, once a stateful operator is in
    has_state: bool = False
    closed: str = ""  # why nothing may follow
    reasons: list[str] = field(default_factory=list)  # why it is parted from units before it
    ends: list[str] = field(default_factory=list)  # why units after it are parted from it

    @property
    def streams(self) -> set[str]:
        return {stream for operator in self.operators for stream in operator.outputs}


def cut(graph: Graph) -> tuple[Unit, ...]:
    """The units of a well-formed graph, upstream first."""
    groups: list[_Group] = []
    for operator in graph.order:
        mine = _Group([operator])
        for producing in _producers(graph, operator, groups):
            part = _parted(graph, producing, mine, operator)
            if not part and (reader := _reads_inside(_merged(producing, mine))):
                part = f"'{reader}' works over the stream and reads sealed frames"
            if not part and _would_circle(graph, groups, producing, mine):
                part = f"'{operator.name}' also waits for a unit that waits for '{_last(producing).name}'"
            if part:
                mine.reasons.append(part)
                producing.ends.append(part)
            else:
                groups.remove(producing)
                mine = _merged(producing, mine)
        _settle(graph, mine, operator)
        groups.append(mine)
    return tuple(_unit(graph, group) for group in _in_order(graph, groups))


def _last(group: _Group) -> Operator:
    return group.operators[-1]


def _producers(graph: Graph, operator: Operator, groups: list[_Group]) -> list[_Group]:
    found: list[_Group] = []
    for edge in operator.inputs:
        for group in groups:
            if not edge.is_feedback and edge.stream in group.streams and group not in found:
                found.append(group)
    return found


def _parted(graph: Graph, producing: _Group, mine: _Group, operator: Operator) -> str:
    """Why the operator does not join; empty if it does."""
    before = _feeding(producing, operator)
    for one, other in ((operator, before), (before, operator)):
        if one.apart:
            return f"'{one.name}' is declared apart"
        if one.unit is not None and one.unit != other.unit:
            return f"'{one.name}' is declared in unit '{one.unit}'"
        if one.protect is not None and one.protect != graph.protection_of(other):
            return f"'{one.name}' has a protection of its own ({one.protect})"
        if one.host is not None and one.host != other.host:
            return f"'{one.name}' is placed on host '{one.host}'"
        if one.spark_conf and one.spark_conf != other.spark_conf:
            return f"'{one.name}' has Spark settings of its own"
    if operator.kind == "stream":
        return f"'{operator.name}' works over the stream and reads sealed frames"
    if producing.closed:
        return producing.closed
    if not producing.has_state:
        return ""
    if len(operator.outputs) > 1:
        return f"'{operator.name}' splits what '{_stateful(producing).name}' keeps state for"
    follows = any(edge.stream in producing.tail for edge in operator.inputs)
    if operator.kind in STATELESS_BUILT_IN and follows and not mine.has_state:
        return ""
    return f"'{_stateful(producing).name}' keeps state and ends its unit"


def _feeding(group: _Group, operator: Operator) -> Operator:
    read = {edge.stream for edge in operator.inputs if not edge.is_feedback}
    return next(each for each in reversed(group.operators) if read & set(each.outputs))


def _stateful(group: _Group) -> Operator:
    return next(each for each in group.operators if each.is_stateful)


def _merged(producing: _Group, mine: _Group) -> _Group:
    return _Group(
        producing.operators + mine.operators,
        producing.tail | mine.tail,
        producing.has_state or mine.has_state,
        producing.closed or mine.closed,
        producing.reasons + mine.reasons,
        producing.ends + mine.ends,
    )


def _settle(graph: Graph, group: _Group, operator: Operator) -> None:
    """Note what the operator just taken in means for those that follow."""
    if operator.is_stateful:
        group.has_state = True
        group.tail = set(operator.outputs)
    elif group.has_state:
        group.tail = set(operator.outputs)
    if operator.apart:
        group.closed = f"'{operator.name}' is declared apart"
    readers = sum(len(graph.consumers_of(s)) + len(graph.sinks_of(s)) for s in operator.outputs)
    if group.has_state and (readers > 1 or len(operator.outputs) > 1):
        state = _stateful(group)
        if state is operator:
            group.closed = f"'{operator.name}' keeps state and has more than one consumer"
        else:
            group.closed = f"'{operator.name}' follows state ('{state.name}') and has more than one consumer"


def _reads_inside(group: _Group) -> str:
    """The operator over the stream that would read a stream of its own unit, if there is one."""
    for each in group.operators:
        if each.kind == "stream" and any(e.stream in group.streams for e in each.inputs if not e.is_feedback):
            return each.name
    return ""


def _would_circle(graph: Graph, groups: list[_Group], producing: _Group, mine: _Group) -> bool:
    """Whether a third unit would lie between the two: it reads one and feeds the other."""
    joined = _merged(producing, mine)
    others = [group for group in groups if group is not producing and group is not mine]
    after = {id(group): _reads(group) for group in others}
    # Walk upstream from the joined unit through the others; meeting it again is a circle.
    todo = [group for group in others if group.streams & _reads(joined)]
    seen: set[int] = set()
    while todo:
        group = todo.pop()
        if id(group) in seen:
            continue
        seen.add(id(group))
        if after[id(group)] & joined.streams:
            return True
        todo.extend(other for other in others if other.streams & after[id(group)])
    return False


def _reads(group: _Group) -> set[str]:
    return {edge.stream for each in group.operators for edge in each.inputs if not edge.is_feedback}


def _in_order(graph: Graph, groups: list[_Group]) -> list[_Group]:
    left, done, made = list(groups), [], {source.name for source in graph.sources}
    while left:
        ready = next((g for g in left if _reads(g) - g.streams <= made), left[0])
        left.remove(ready)
        done.append(ready)
        made |= ready.streams
    return done


def _unit(graph: Graph, group: _Group) -> Unit:
    places = {operator.name: i for i, operator in enumerate(graph.order)}
    members = sorted(group.operators, key=lambda operator: places[operator.name])
    names = tuple(operator.name for operator in members)
    inputs: dict[UnitInput, None] = {}
    for operator in members:
        for edge in operator.inputs:
            if edge.is_feedback or edge.stream not in group.streams:
                inputs[UnitInput(edge.stream, edge.feedback_frames)] = None
    outputs = tuple(
        stream
        for operator in members
        for stream in operator.outputs
        if graph.sinks_of(stream)
        or any(edge.is_feedback or edge.consumer not in names for edge in graph.consumers_of(stream))
    )
    stream_part = tuple(operator.name for operator in members if operator.kind == "stream")
    return Unit(
        names[-1],
        names,
        stream_part,
        tuple(name for name in names if name not in stream_part),
        tuple(inputs),
        outputs,
        _why(names, group),
        graph.protection_of(members[0]),
        members[0].host,
    )


def _why(names: tuple[str, ...], group: _Group) -> str:
    if group.reasons or group.ends:
        return "; ".join(dict.fromkeys(group.reasons or group.ends))
    return "it reads sources only" if len(names) == 1 else "nothing parts its operators"
