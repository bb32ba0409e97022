"""What `holdfast model` and `holdfast predict` say: numbers beside promises, and the plans they are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.models.firstorder import Impact
    from holdfast.models.predicting import Prediction
    from holdfast.models.stream import StreamModel

__all__ = ["fields", "model_lines", "other_plans", "percent", "prediction_fields", "prediction_lines", "seconds"]

_WORDS = {"unavailable": "available", "late": "late", "lost": "lost", "tainted": "tainted"}


def percent(share: float) -> str:
    """Three digits that matter; nothing at all is 0."""
    if share <= 1e-12:
        return "0"
    if share < 0.00001:
        return "<0.001%"
    return f"{share:.3%}" if share < 0.001 else f"{share:.2%}"


def seconds(value: float) -> str:
    """'9.5 s', '30 min', '2 h', '1.5 d'."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value >= (10 * size if unit == "min" else size):
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def fields(model: StreamModel) -> dict[str, Any]:
    return {
        "operators": [asdict(each) for each in model.operators],
        "faults": [asdict(each) for each in model.faults],
        "notes": model.notes,
    }


def model_lines(model: StreamModel) -> list[str]:
    """One line for each unit: what it was measured to do, and when its state is right again."""
    rows = [("", "in/s", "out/s", "ms/frame", "state", "back in", "right again after")]
    repair = {target: fault.repair_s for fault in model.faults if fault.kind == "crash" for target in fault.of}
    for unit, names in model.units.items():
        operators = [model.operator(name) for name in names]
        if operators[0].is_source:
            rows.append((unit, "", f"{operators[0].rate:,.4g}", "", "", "", ""))
            continue
        came = sum(model.rates[names[0]][0])
        work = sum(each.frame_cost_s for each in operators)
        size = sum(each.state_bytes for each in operators)
        rows.append((
            unit, f"{came:,.4g}", f"{model.rates[names[-1]][1]:,.4g}", f"{work * 1000:,.0f}", f"{size / 1000:,.1f} kB" if size else "",
            f"{repair[unit]:g} s" if unit in repair else "", "; ".join(_refills(model, each) for each in operators if each.is_stateful),
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, *(f"{word}: {text}" for word, text in model.notes.items())]


def _refills(model: StreamModel, operator) -> str:
    found = []
    for port, rate in zip(operator.ports, model.rates[operator.name][0], strict=True):
        state = port.state
        if state is None:
            continue
        if math.isinf(state.gamma):
            found.append("never")
        elif state.beta:
            found.append(
                f"{state.alpha * state.size:,.0f} + {state.beta:.3g} x lost rows, at most {state.gamma * state.size:,.0f}"
            )
        else:
            found.append(seconds(state.to_refill(0) / rate) if rate else "at once")
    return ", ".join(dict.fromkeys(found))


def other_plans(model: StreamModel) -> dict[str, StreamModel]:
    """As declared first, then what a person would ask next; plans that are the same are shown once."""
    from holdfast.models.stream import Protect

    plain = replace(model, copies=())
    plans = {
        "as declared": model,
        "no protection": plain.with_protection(Protect()),
        "checkpoint 5 s": plain.with_protection(Protect("checkpoint", 5.0)),
        "ecoc 5 s": plain.with_protection(Protect("ecoc", 5.0)),
    }
    found: dict[str, StreamModel] = {}
    for name, each in plans.items():
        if each not in found.values():
            found[name] = each
    return found


def prediction_lines(model: StreamModel, plans: Mapping[str, Prediction], single: Sequence[Impact]) -> list[str]:
    first = next(iter(plans.values()))
    often = (
        ", ".join(dict.fromkeys(f"{fault.kind} every {seconds(fault.mttf_s)}" for fault in model.faults)) or "no faults"
    )
    lines = [f"{model.name}   {seconds(first.until_s)}, {first.replications:,} replications, {often}"]
    width = max(20, *(len(name) + 4 for name in plans))
    for o, output in enumerate(model.outputs):
        lines += ["", f"{output.operator:<26}" + "".join(name.ljust(width) for name in plans) + "promised"]
        promised = {
            "unavailable": f"at least {output.available_at_least:.4g}" if output.available_at_least else "",
            "late": f"within {seconds(output.within_s)}, later at most {percent(output.late_at_most)}"
            if math.isfinite(output.within_s)
            else "",
            "lost": f"at most {percent(output.lost_at_most)}" if output.lost_at_most < 1 else "",
            "tainted": f"at most {percent(output.wrong_at_most)}" if output.wrong_at_most < 1 else "",
        }
        for share, word in _WORDS.items():
            cells = []
            for name, prediction in plans.items():
                found = prediction.outputs[o]
                if share == "unavailable":
                    text = f"{found.available.mean:.4f}" + (
                        f" +- {found.available.half_width:.4f}" if name == "as declared" else ""
                    )
                else:
                    value = found.share(share)
                    text = percent(value.mean) + (
                        f" +- {percent(value.half_width)}" if name == "as declared" and value.half_width > 1e-9 else ""
                    )
                if any(promise.output == o and promise.share == share for promise, _ in prediction.broken()):
                    text += " (!)"
                cells.append(text.ljust(width))
            lines.append(f"  {word:<24}" + "".join(cells) + promised[share])
        if math.isfinite(output.tentative_s):
            cells = [percent(prediction.outputs[o].tentative.mean).ljust(width) for prediction in plans.values()]
            lines.append(f"  {'tentative':<24}" + "".join(cells))
    return [*(line.rstrip() for line in lines), "", *_costliest(single), *_verdict(model, first)]


def _costliest(single: Sequence[Impact]) -> list[str]:
    """By what one hit makes unavailable, at the output it hurts most."""
    worst = [each for each in single if each.seconds["unavailable"].max() > 0.05]
    if not worst:
        return ["one fault alone makes nothing late, lost or wrong"] if single else []
    worst.sort(key=lambda each: -float(each.seconds["unavailable"].max()))
    seen: dict[tuple[str, str], Impact] = {}
    for each in worst:
        seen.setdefault((each.kind, each.target), each)
    words = [
        f"{kind} of {target} {seconds(float(each.seconds['unavailable'].max()))}"
        for (kind, target), each in list(seen.items())[:4]
    ]
    return [f"one fault costs most: {', then '.join(words)}"]


def _verdict(model: StreamModel, first: Prediction) -> list[str]:
    broken = first.broken()
    if not broken:
        return ["every promise is kept, on average"]
    return [
        f"(!) {model.outputs[promise.output].operator}: {_WORDS[promise.share]}"
        + (f" {1 - found.mean:.4f}, promised {1 - promise.at_most:.4f}" if promise.share == "unavailable"
           else f" {percent(found.mean)}, promised at most {percent(promise.at_most)}")
        for promise, found in broken
    ]  # fmt: skip


def prediction_fields(model: StreamModel, plans: Mapping[str, Prediction], single: Sequence[Impact]) -> dict[str, Any]:
    return {
        "process": model.name,
        "plans": [
            {
                "plan": name,
                "outputs": [
                    {
                        "output": each.name,
                        "worst_delay_s": each.worst_delay_s,
                        **{
                            word: {"mean": measure.mean, "half_width": measure.half_width}
                            for word, measure in (
                                ("available", each.available),
                                *((share, each.share(share)) for share in ("late", "lost", "tainted", "tentative")),
                            )
                        },
                    }
                    for each in prediction.outputs
                ],
                "broken": [
                    {
                        "output": model.outputs[promise.output].operator,
                        "share": promise.share,
                        "at_most": promise.at_most,
                        "found": found.mean,
                    }
                    for promise, found in prediction.broken()
                ],
            }
            for name, prediction in plans.items()
        ],
        "single_faults": [
            {"kind": each.kind, "target": each.target, "copy": each.copy, "often": each.often}
            | {share: values.tolist() for share, values in each.seconds.items()}
            for each in single
        ],
    }
