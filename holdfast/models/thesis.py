"""Bargain discovery as chapter 5 of the partial fault tolerance thesis measures it, and what it found.

Table 5.3 with the text's parameters: a source, four filters, an aggregate over the last trades of each
symbol, a join of quotes with the latest average, a sink. Two numbers are not in the text and were read off
table 5.4: the length of its runs (360 s, from the row of Filter 4) and the join's selectivity while it is
unstable (0.222, from the tainted counts; "changed by 10 %" would be 0.2002 and misses all six by 10 %).
The members of the groups of configuration 2 are in a picture that is lost; these fit the text best.

Pure: plain values.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, Port, Protect, State, StreamModel

__all__ = [
    "TABLE_5_4",
    "TABLE_5_4_RATE",
    "TABLE_5_4_SECONDS",
    "bargain",
    "configuration_1",
    "configuration_2",
    "corrupted_by_hand",
    "fully_replicated",
    "one_crash",
]

# operator -> availability, tainted elements: one crash of 16 s at 2,200 elements a second.
TABLE_5_4 = {
    "source": (0.84533, 15506.32),
    "filter1": (0.84536, 15500.01),
    "filter2": (0.84533, 21752.34),
    "aggregate": (0.83987, 22520.63),
    "filter3": (0.93676, 8898.29),
    "filter4": (0.95555, 0.0),
    "join": (0.93599, 2753.54),
}
TABLE_5_4_RATE = 2200.0
TABLE_5_4_SECONDS = 360.0  # read off the table
_JOIN_UNSTABLE = 0.222  # read off the table

AGGREGATE = State(15495.0, 0.035, 1.98, 1.0, 0.005)
JOIN = State(3099.0, 0.03, 0.41, 1.0, 0.005)
_GROUPS = (("source", "filter1"), ("filter2", "aggregate", "filter3"))


def bargain(
    rate: float, *, mttf_s: float = 5400.0, repair_s: float = 3.5, corruption_mttf_s: float | None = None
) -> StreamModel:
    """Without any protection. 5 % more passes a filter that is handed wrong elements."""
    operators = (
        Operator("source", rate=rate, cost_s=1.26e-6),
        Operator("filter1", (Port(("source",), cost_s=1.26e-6),)),
        Operator("filter2", (Port(("filter1",), 0.2, 0.21, 5.29e-7),)),
        Operator("aggregate", (Port(("filter2",), cost_s=1.32e-5, state=AGGREGATE),)),
        Operator("filter3", (Port(("aggregate",), cost_s=5.47e-7),)),
        Operator("filter4", (Port(("filter1",), 0.8, 0.84, 2.25e-7),)),
        Operator(
            "join", (Port(("filter3",), 0.0, 0.0, 1.27e-6, JOIN), Port(("filter4",), 0.182, _JOIN_UNSTABLE, 1.27e-6))
        ),
        Operator("sink", (Port(("join",), cost_s=7.43e-7),)),
    )
    faults = (Fault("crash", mttf_s, repair_s),)
    if corruption_mttf_s is not None:
        faults = (Fault("corruption", corruption_mttf_s),)
    return StreamModel("bargain", operators, faults=faults)


def configuration_1(model: StreamModel) -> StreamModel:
    """Checkpoints of the two that have state, a second old when they are needed."""
    return model.with_protection(Protect("checkpoint", 1.0), ["aggregate", "join"])


def configuration_2(model: StreamModel, *, also: tuple[str, ...] = ()) -> StreamModel:
    """Two groups with one active copy each, a checkpoint of the join; `also`: of these too."""
    groups = tuple(Copies(members) for members in _GROUPS)
    return replace(model.with_protection(Protect("checkpoint", 1.0), ["join", *also]), copies=groups)


def fully_replicated(model: StreamModel) -> StreamModel:
    """Everything twice but the source and the sink."""
    members = tuple(each.name for each in model.operators if each.name not in ("source", "sink"))
    return replace(model, copies=(Copies(members, "replicate"),))


def one_crash(name: str, at_s: float = 100.0) -> list[Hit]:
    return [Hit(at_s, "crash", name)]


def corrupted_by_hand(rate: float, mttf_s: float, until_s: float = 7200.0) -> tuple[float, float]:
    """Availability and tainted elements of `fully_replicated` under corruption, without simulation.

    Faults are rare, so each is taken alone: how long the aggregate and the join are wrong after it, times how often
    it happens. A wrong aggregate lets the join take wrong averages until it is right, and then the join refills.
    """
    trades, quotes = 0.2 * rate, 0.8 * rate
    join_s = JOIN.to_refill_tainted / trades
    both_s = AGGREGATE.to_refill_tainted / trades + join_s
    # operator -> copies, seconds that one fault makes wrong, elements that are wrong by themselves
    impact = {
        "source": (1, 0.21 * both_s, 0.84 * _JOIN_UNSTABLE),
        "filter1": (2, 0.21 * both_s, 0.84 * _JOIN_UNSTABLE),
        "filter2": (2, 0.21 * both_s, 0.0),
        "aggregate": (2, 0.5 * both_s + 0.5 * join_s, 0.0),
        "filter3": (2, join_s, 0.0),
        "filter4": (2, 0.0, 0.84 * _JOIN_UNSTABLE),
        "join": (2, 0.5 * join_s, 0.5 * 0.8 * _JOIN_UNSTABLE),
        "sink": (1, 0.0, 1.0),
    }
    often = until_s / mttf_s
    seconds = sum(copies * wrong_s for copies, wrong_s, _ in impact.values()) * often
    single = sum(copies * elements for copies, _, elements in impact.values()) * often
    return 1 - seconds / until_s, seconds * quotes * _JOIN_UNSTABLE + single
