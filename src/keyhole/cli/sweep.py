"""The command sweep: hyperparameter search over methods, reconstructors and K."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyhole.cli.inputs import InputOptions
from keyhole.cli.options import Json
from keyhole.cli.output import check_apart, check_suffix, check_writable, echo, print_json, say
from keyhole.core.interrupts import stoppable

__all__ = ["sweep"]


def sweep(
    study: Annotated[
        Path, typer.Argument(help="Study file (.toml): data, search space and number of trials; see docs/sweeps.md.")
    ],
    figure: Annotated[
        Path | None, typer.Option(help="Figure of the Pareto fronts to write: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Search over methods, reconstructors and settings; run it several times in parallel, or again to resume."""
    from keyhole.data.preparation import prepare
    from keyhole.workflow.sweeps import finished, fronts, read_study, work
    from keyhole.workflow.sweeps.pareto import fronts_figure

    check_suffix(figure, "--figure", ".png", ".svg", ".pdf")
    check_writable(figure)
    config = read_study(study)
    url = config.url(study)
    database = study.with_suffix(".db") if config.storage is None else None
    check_apart({"STUDY": study, "its source": config.source}, {"--figure": figure, "its trials": database})
    inputs = InputOptions(variable=config.variable, anomalies=config.anomalies)
    prepared = prepare(inputs.read_samples(config.source), config.split, config.seed)
    with stoppable(say):
        work(config, url, prepared, say)
    trials = finished(config, url)
    if figure is not None:
        from keyhole.report import save_figure

        save_figure(fronts_figure(trials, config.metric), figure)
    by_k, by_time = fronts(trials)
    if as_json:
        print_json({"trials": [vars(one) for one in trials], "by_k": [one.number for one in by_k.trials],
                    "by_time": [one.number for one in by_time.trials]})  # fmt: skip
        return
    echo(f"{len(trials)} trials; Pareto front of {config.metric} against the number of sites:")
    for one in by_k.trials:
        echo(f"  K = {one.k:>4}  {one.error:.4f}  {one.method} + {one.reconstructor}, {one.seconds:.1f} s")
