"""Random stream graphs and fault schedules, for tests that compare one model with another."""

from __future__ import annotations

import numpy as np

from holdfast.models.schedules import Hit
from holdfast.models.stream import Copies, Fault, Operator, Port, Protect, State, StreamModel


def random_graph(seed: int, *, whole: bool = False, rate: float = 300.0) -> StreamModel:
    """3 to 10 operators. `whole`: selectivities are whole numbers, so that nothing is left to chance."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 11))
    sources = 1 + int(count > 5 and rng.random() < 0.3)
    # Rates without a common multiple: no two elements of different sources come at one moment.
    operators = [Operator(f"op{i}", rate=rate * (1 + 0.2503 * i), host=f"host{i % 2}") for i in range(sources)]
    unread = [operator.name for operator in operators]
    for i in range(sources, count):
        last = i == count - 1
        names = [operator.name for operator in operators]
        # The last one reads whatever nobody reads yet, so that there is one output.
        first = tuple(unread) if last else (str(rng.choice(names)),)
        ports = [_port(rng, first, whole, rate)]
        others = [name for name in names if name not in first]
        if others and not last and rng.random() < 0.35:
            ports.append(_port(rng, (str(rng.choice(others)),), whole, rate))
        stateful = any(port.state for port in ports)
        keeps = stateful and rng.random() < 0.6
        protect = Protect("checkpoint", 1.0) if keeps else Protect()
        operators.append(Operator(f"op{i}", tuple(ports), protect=protect, host=f"host{int(rng.integers(3))}"))
        unread = [name for name in unread if not any(name in port.reads for port in ports)] + [f"op{i}"]
    repair_s = float(rng.integers(2, 9))
    faults = (Fault("crash", 200.0, repair_s), Fault("host", 2000.0, repair_s + 1), Fault("driver", 4000.0, 1.0))
    model = StreamModel(f"random {seed}", tuple(operators), faults=faults)
    return _with_group(model, rng) if rng.random() < 0.4 else model


def _port(rng: np.random.Generator, reads: tuple[str, ...], whole: bool, rate: float) -> Port:
    state = None
    if rng.random() < 0.4:
        state = State(
            size=float(rng.integers(2, 10)) * rate,
            alpha=float(rng.uniform(0.02, 0.3)),
            beta=float(rng.uniform(0.0, 2.0)),
            alpha_taint=float(rng.choice([0.1, 0.3])),
            refilling=1.0 if whole else 0.5,
        )
    if whole:
        return Port(reads, float(rng.integers(0, 3) or 1), float(rng.integers(0, 3)), state=state)
    selectivity = float(rng.uniform(0.3, 1.3))
    return Port(reads, selectivity, selectivity * float(rng.uniform(0.9, 1.1)), state=state)


def _with_group(model: StreamModel, rng: np.random.Generator) -> StreamModel:
    """One operator and, where it is its only reader, the next one: copied."""
    first = int(rng.integers(0, len(model.operators) - 1))
    members = [model.operators[first].name]
    after = model.operators[first + 1]
    if first + 1 < len(model.operators) - 1 and all(set(port.reads) == set(members) for port in after.ports):
        members.append(after.name)
    # A failover longer than a repair lets a copy be whole again, and wrong, when one is chosen.
    group = Copies(tuple(members), n=int(rng.integers(2, 4)), failover_s=float(rng.choice([1.0, 6.0])))
    return StreamModel(model.name, model.operators, faults=model.faults, copies=(group,))


def random_schedule(model: StreamModel, until_s: float, hits: int, seed: int) -> list[Hit]:
    """Mostly crashes of one operator, now and then a host or the driver; the last fifth of the time is calm."""
    rng = np.random.default_rng([seed, 1])
    copies = {name: group.n for group in model.copies for name in group.members}
    found = []
    for at in sorted(rng.uniform(1.0, 0.8 * until_s, hits)):
        kind = str(rng.choice(["crash", "host", "driver"], p=[0.8, 0.15, 0.05]))
        fault = next((fault for fault in model.faults if fault.kind == kind), model.faults[0])
        targets = model.targets(fault)
        target, names = targets[int(rng.integers(len(targets)))]
        most = 1 if fault.kind == "driver" else max(copies.get(name, 1) for name in names)
        found.append(Hit(float(at), fault.kind, target, int(rng.integers(most))))
    return found
