"""Both solvers on random graphs: shares are shares, an undisturbed model is perfect, more faults never help by much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from holdfast.models.fluid import simulate_drops
from holdfast.models.stream import Copies, Fault, Operator, Output, Port, Protect, State, StreamModel
from holdfast.models.waiting import simulate_waits


def random_model(seed: int, flow: str) -> StreamModel:
    """Three to ten operators; joins, states, copies, hosts, skips and every kind of fault."""
    rng = np.random.default_rng(seed)
    operators = [Operator("s0", rate=100.0), Operator("s1", rate=40.0)]
    for i in range(int(rng.integers(3, 11)) - 2):
        names = [each.name for each in operators]
        ports = []
        for _ in range(1 + int(rng.random() < 0.4)):
            state = State(float(rng.uniform(50, 3000)), float(rng.uniform(0, 1)), float(rng.uniform(0, 2)), 1.0, 0.05)
            reads = (str(rng.choice(names)),)
            ports.append(
                Port(
                    reads,
                    float(rng.uniform(0.2, 1.0)),
                    float(rng.uniform(0.2, 1.0)),
                    state=state if rng.random() < 0.5 else None,
                )
            )
        kind = str(rng.choice(["none", "checkpoint", "ecoc"] if flow == "waits" else ["none", "checkpoint"]))
        behind = float(rng.uniform(2, 10)) if flow == "waits" and kind != "ecoc" and rng.random() < 0.4 else np.inf
        operators.append(
            Operator(
                f"o{i}",
                tuple(ports),
                frame_cost_s=float(rng.uniform(0.05, 0.6)),
                host=f"h{i % 3}",
                protect=Protect(kind, 5.0, behind),
            )
        )
    copied = [each.name for each in operators if not each.is_source and rng.random() < 0.3]
    copies = tuple(
        Copies((name,), str(rng.choice(["ha", "replicate"])), int(rng.integers(2, 4)), 1.0) for name in copied
    )
    faults = (
        Fault("crash", 600.0, 8.0, exponential_repair=True), Fault("host", 1500.0, 12.0), Fault("corruption", 900.0), Fault("source", 2000.0, 20.0),
        Fault("driver", 4000.0, 10.0),
    )  # fmt: skip
    return StreamModel(
        "random",
        tuple(operators),
        (Output(operators[-1].name, 4.0),),
        faults,
        copies,
        flow,
        1.0 if flow == "waits" else 0.0,
    )


@pytest.mark.parametrize("seed", range(30))
def test_positions_and_marks_stay_within_their_bounds(seed):
    model = random_model(seed, "waits")
    found = simulate_waits(model, until_s=1800.0, replications=40, rng=np.random.default_rng(seed))

    for share in (found.available, found.late, found.lost, found.tainted):
        assert (share >= -1e-9).all()
    assert (found.available <= 1 + 1e-9).all()
    assert (found.late <= 1 + 1e-9).all()
    # What is neither late, lost nor tainted is available; lost is not a share of time, so only these two bound it.
    assert (found.available <= 1 - found.late + 1e-6).all()
    assert np.isfinite(found.delay_max_s).all()
    assert found.hits > 0


@pytest.mark.parametrize("seed", range(30))
def test_rates_stay_within_their_bounds(seed):
    model = random_model(seed, "drops")
    found = simulate_drops(model, until_s=1800.0, replications=40, rng=np.random.default_rng(seed))

    assert ((found.available >= 0) & (found.available <= found.up + 1e-9)).all()
    assert (found.available_of >= found.available - 1e-9).all()
    assert (found.clean <= found.nominal[:, None] * (1 + 1e-9)).all()
    assert (found.tainted >= 0).all()


@pytest.mark.parametrize("flow", ["drops", "waits"])
@pytest.mark.parametrize("seed", range(5))
def test_without_faults_everything_is_perfect(flow, seed):
    model = replace(random_model(seed, flow), faults=())
    if flow == "waits":
        model = replace(model, outputs=(replace(model.outputs[0], within_s=100.0),))
        found = simulate_waits(model, until_s=600.0, replications=3, rng=np.random.default_rng(0))
        assert found.available == pytest.approx(1.0)
        assert found.tainted == pytest.approx(0.0)
    else:
        found = simulate_drops(model, until_s=600.0, replications=3, rng=np.random.default_rng(0))
        assert found.available == pytest.approx(1.0)
        assert found.clean[0] == pytest.approx(found.nominal[0])
