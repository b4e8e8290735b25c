"""The command that tries many plans: sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyhole.cli.options import Json
from keyhole.cli.output import check_apart, check_suffix, check_writable, echo, print_json, say
from keyhole.cli.source import Reading
from keyhole.core.interrupts import stoppable

__all__ = ["sweep"]


def sweep(
    study: Annotated[Path, typer.Argument(help="A .toml file: the data, what to try, how often (docs/sweeps.md).")],
    figure: Annotated[Path | None, typer.Option(help="Figure of the fronts to write, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Try many plans of one data set; run it several times at once for several workers, or again to go on."""
    from keyhole.data.preparation import prepare
    from keyhole.workflow.sweeps import finished, fronts, read_study, work
    from keyhole.workflow.sweeps.pareto import fronts_figure

    check_suffix(figure, "--figure", ".png", ".svg", ".pdf")
    check_writable(figure)
    asked = read_study(study)
    url = asked.url(study)
    kept = study.with_suffix(".db") if asked.storage is None else None
    check_apart({"STUDY": study, "its source": asked.source}, {"--figure": figure, "its trials": kept})
    reading = Reading(variable=asked.variable, anomalies=asked.anomalies)
    prepared = prepare(reading.signals(asked.source), asked.split, asked.seed)
    with stoppable(say):
        work(asked, url, prepared, say)
    trials = finished(asked, url)
    if figure is not None:
        from keyhole.report import save_figure

        save_figure(fronts_figure(trials, asked.metric), figure)
    by_k, by_time = fronts(trials)
    if as_json:
        print_json({"trials": [vars(one) for one in trials], "by_k": [one.number for one in by_k.trials],
                    "by_time": [one.number for one in by_time.trials]})  # fmt: skip
        return
    echo(f"{len(trials)} trials; nothing has less {asked.metric} with as few sites than:")
    for one in by_k.trials:
        echo(f"  K = {one.k:>4}  {one.error:.4f}  {one.method} + {one.reconstructor}, {one.seconds:.1f} s")
