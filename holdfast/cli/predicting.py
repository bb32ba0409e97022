"""`holdfast model`, `predict` and `advise`: what faults do to a process, and which protections keep its promises.

Answers go to standard output. Exit 0 when every promise is kept (predict) or some plan keeps them all (advise), 4 when
not, 2 when the call or the model makes no sense. Nothing runs, and no source or sink is opened; `model` reads the records
of a run, `advise --write` changes the process's file and shows what it changed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.errors import UsageError
from holdfast.extras import need
from holdfast.graph.durations import duration_ms

if TYPE_CHECKING:
    from holdfast.models.advising import Bounds
    from holdfast.models.stream import StreamModel

__all__ = ["add_to", "cost_bounds", "with_faults"]

File = Annotated[str, typer.Argument(metavar="FILE", help="Python file with the process, or a model.toml")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
State = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="state folder (default: .holdfast/NAME)")]
Mttf = Annotated[str | None, typer.Option(metavar="T", help="mean time between crashes of each unit, as in 30m")]
HostMttf = Annotated[str | None, typer.Option(metavar="T", help="mean time between losses of each host, as in 1d")]
For = Annotated[str, typer.Option("--for", metavar="T", help="how long it runs")]
Replications = Annotated[int, typer.Option(metavar="N", min=2, help="how often that is simulated")]
Seed = Annotated[int, typer.Option(metavar="S", help="of the simulation: the same seed, the same answer")]
MODEL = "model.toml"


def add_to(app: typer.Typer) -> None:
    app.command()(model)
    app.command()(predict)
    app.command()(advise)


def model(
    file: File,
    profile: Annotated[
        Path | None, typer.Option(metavar="RUN", help="state folder of the run (default: the process's own)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write it there (default: model.toml in the state folder)")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make a model of a process from its graph and the records of a run. `predict` and `advise` read it."""
    need("predict", "holdfast model")
    from holdfast.cli.predicted import fields, model_lines
    from holdfast.models.files import write_model

    made, folder = _derive(file, profile, seed)
    path = out or folder / MODEL
    path.write_text(write_model(made), encoding="utf-8")
    if as_json:
        print(render.as_json({"model": str(path), **fields(made)}))
        return
    for line in [*model_lines(made), f"model      {path}   (edit it: predict and advise read it)"]:
        print(line)


def predict(
    file: File,
    mttf: Mttf = None,
    host_mttf: HostMttf = None,
    for_: For = "2h",
    replications: Replications = 1000,
    seed: Seed = 0,
    plot: Annotated[Path | None, typer.Option(metavar="OUT", help="write plots to this picture")] = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """What faults do to each output: available, late, lost, tainted, beside its promises and other protections."""
    import numpy as np

    need("predict", "holdfast predict")
    from holdfast.cli.predicted import other_plans, prediction_fields, prediction_lines
    from holdfast.models.firstorder import impacts
    from holdfast.models.predicting import predict as foretold

    found = with_faults(_model(file, state), mttf, host_mttf)
    until_s = _seconds(for_, "--for")
    rng = np.random.default_rng
    plans = {
        name: foretold(each, until_s=until_s, replications=replications, rng=rng(seed))
        for name, each in other_plans(found).items()
    }
    single = impacts(found, until_s=until_s, rng=rng(seed))
    if plot is not None:
        from holdfast.cli.plotting import plot_prediction

        plot_prediction(found, plans, until_s, rng(seed), plot)
    if as_json:
        print(render.as_json(prediction_fields(found, plans, single)))
    else:
        for line in prediction_lines(found, plans, single):
            print(line)
        if plot is not None:
            print(f"plots      {plot}")
    raise typer.Exit(4 if next(iter(plans.values())).broken() else 0)


def advise(
    file: File,
    mttf: Mttf = None,
    host_mttf: HostMttf = None,
    cost: Annotated[
        list[str] | None, typer.Option(metavar="BOUND", help='as in "cpu <= 1.5x" or "bytes <= 100kB" (a second)')
    ] = None,
    for_: For = "2h",
    replications: Replications = 1000,
    seed: Seed = 0,
    write: Annotated[
        bool, typer.Option("--write", help="put the protections into FILE, and show the difference")
    ] = False,
    state: State = None,
    as_json: Json = False,
) -> None:
    """The cheapest protections that keep all promises, what each costs and buys, and what would not be enough."""
    import numpy as np

    need("predict", "holdfast advise")
    from holdfast.cli.advised import advice_fields, advice_lines, declarable, written
    from holdfast.models.advising import advise as advised

    found = with_faults(_model(file, state), mttf, host_mttf)
    bounds = cost_bounds(cost or [])
    advice = advised(
        found,
        declarable(found),
        until_s=_seconds(for_, "--for"),
        rng=np.random.default_rng(seed),
        bounds=bounds,
        replications=replications,
    )
    difference = written(Path(file.partition(":")[0]), found, advice) if write and advice.chosen is not None else ""
    if as_json:
        print(render.as_json(advice_fields(advice) | ({"diff": difference} if write else {})))
    else:
        for line in advice_lines(advice):
            print(line)
        if difference:
            print(f"\n{difference}", end="")
    raise typer.Exit(0 if advice.chosen is not None else 4)


# -- what a call means -------------------------------------------------------------


def _model(file: str, state: Path | None) -> StreamModel:
    """The one that is named, the one beside the run, or one made from the run's records."""
    if file.endswith(".toml"):
        return _read(Path(file))
    from holdfast.cli.reaching import state_dirs

    folder = state_dirs(file, state)[0]
    if (folder / MODEL).is_file():
        from holdfast.loading import load
        from holdfast.records.deriving import with_declared

        return with_declared(_read(folder / MODEL), load(file).graph())
    if not (folder / "deployment.json").is_file():
        raise UsageError(
            "HF-M002",
            "NoModel",
            f"there is neither a model nor a run of {file} to make one from.",
            where=str(folder),
            effect="nothing was computed",
            do=f"run it once (holdfast run {file}), then holdfast model {file}; or name a model.toml",
        )
    return _derive(file, folder, 0)[0]


def _read(path: Path) -> StreamModel:
    from holdfast.models.files import read_model

    try:
        return read_model(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(
            "HF-M002",
            "NoModel",
            "the model cannot be read.",
            where=str(path),
            why=str(error),
            effect="nothing was computed",
            do="correct the path",
        ) from None


def _derive(file: str, profile: Path | None, seed: int) -> tuple[StreamModel, Path]:
    import numpy as np

    from holdfast.cli.reaching import state_dirs
    from holdfast.graph.units import cut
    from holdfast.loading import load
    from holdfast.records.deriving import derived
    from holdfast.records.kept import Kept
    from holdfast.records.measured import measure_run, row_window_keys

    folder = state_dirs(file, profile)[0]
    graph = load(file).graph()
    kept = Kept(folder)
    if unknown := [unit.name for unit in cut(graph) if unit.name not in kept.deployment["units"]]:
        raise UsageError(
            "HF-M003",
            "RunDoesNotFit",
            f"the run has no unit {unknown[0]!r}.",
            where=str(folder),
            why="its process was cut in another way than the file is now",
            effect="nothing was written",
            do="run the file as it is now, and take that run",
        )
    from holdfast.models.refilling import fit_row_windows

    fits = {}
    for name, keys, rows in row_window_keys(kept, graph):
        if (fit := fit_row_windows(np.asarray(keys), rows, np.random.default_rng(seed))) is not None:
            fits[name] = fit
    return derived(graph, cut(graph), measure_run(kept), fits), folder


def with_faults(found: StreamModel, mttf: str | None, host_mttf: str | None) -> StreamModel:
    """The model with these mean times instead of its own."""
    given = {"crash": mttf, "host": host_mttf}
    seconds = {
        kind: _seconds(text, f"--{'' if kind == 'crash' else 'host-'}mttf")
        for kind, text in given.items()
        if text is not None
    }
    return replace(
        found, faults=tuple(replace(each, mttf_s=seconds.get(each.kind, each.mttf_s)) for each in found.faults)
    )


def cost_bounds(said: list[str]) -> Bounds:
    from holdfast.models.advising import Bounds

    found: dict[str, float] = {}
    for text in said:
        match = re.fullmatch(r"\s*(cpu|bytes)\s*<=\s*(\d+(?:\.\d+)?)\s*(x|B|kB|MB)?(?:/s)?\s*", text)
        if match is None or (match[1] == "cpu") != (match[3] == "x"):
            raise _not_understood("--cost", text, 'write "cpu <= 1.5x" or "bytes <= 100kB"')
        found[match[1]] = float(match[2]) * {"kB": 1e3, "MB": 1e6}.get(match[3], 1.0)
    return Bounds(**found)


def _seconds(text: str, option: str) -> float:
    try:
        seconds = duration_ms(text, what=option) / 1000
    except UsageError:
        seconds = 0.0
    if seconds <= 0:
        raise _not_understood(option, text, f'write {option} 30m, or "{option} 2 hours" in quotes')
    return seconds


def _not_understood(option: str, text: Any, do: str) -> UsageError:
    what = f"{option} {text!r} is not understood."
    return UsageError("HF-M004", "ForecastNotUnderstood", what, effect="nothing was computed", do=do)
