"""Pictures of a prediction: what each plan leaves of every output, and how that falls with rarer faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from holdfast.models.predicting import Prediction
    from holdfast.models.stream import StreamModel

__all__ = ["plot_prediction"]

_TIMES = (0.5, 1.0, 2.0, 4.0)


def plot_prediction(
    model: StreamModel, plans: Mapping[str, Prediction], until_s: float, rng: np.random.Generator, out: Path
) -> None:
    """Left: shares by plan. Right: unavailable over mean time between faults, for the declared plan; bars are 95 %."""
    from matplotlib.figure import Figure

    from holdfast.models.predicting import SHARES, predict

    figure = Figure(figsize=(11, 3.6 * len(model.outputs)), layout="constrained")
    axes = figure.subplots(len(model.outputs), 2, squeeze=False)
    rarer = {
        times: predict(
            replace(model, faults=tuple(replace(each, mttf_s=each.mttf_s * times) for each in model.faults)),
            until_s=until_s,
            replications=400,
            rng=rng,
        )
        for times in _TIMES
    }
    for o, output in enumerate(model.outputs):
        left, right = axes[o]
        width = 0.8 / len(plans)
        for i, (name, prediction) in enumerate(plans.items()):
            measures = [prediction.outputs[o].share(share) for share in SHARES]
            left.bar(
                [k + i * width for k in range(len(SHARES))],
                [100 * each.mean for each in measures],
                width,
                yerr=[100 * each.half_width for each in measures],
                label=name,
            )
        left.set_xticks([k + 0.4 - width / 2 for k in range(len(SHARES))], SHARES)
        left.set_ylabel("%")
        left.set_title(f"{output.operator}: by protection")
        left.legend()
        for share in SHARES:
            measures = [rarer[times].outputs[o].share(share) for times in _TIMES]
            right.errorbar(
                _TIMES,
                [100 * each.mean for each in measures],
                [100 * each.half_width for each in measures],
                marker="o",
                label=share,
            )
        right.set_xscale("log", base=2)
        right.set_xlabel("mean time between faults, times what was given")
        right.set_title(f"{output.operator}: as declared")
        right.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
