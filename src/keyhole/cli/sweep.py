"""The command sweep: hyperparameter search over methods, reconstructors and K."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyhole.cli.bundles import command
from keyhole.cli.options import InputOptions, Json
from keyhole.cli.output import check_outputs, echo, print_json, say
from keyhole.core.interrupts import stoppable

__all__ = ["sweep"]


@command
def sweep(study: Annotated[Path, typer.Argument()], figure: Path | None = None, as_json: Json = False) -> None:
    """Search over methods, reconstructors and settings; run it several times in parallel, or again to resume.

    Parameters
    ----------
    study
        Study file (.toml): data, search space and number of trials; see docs/sweeps.md.
    figure
        Figure of the Pareto fronts to write: .png, .svg or .pdf.
    """
    from keyhole.data.preparation import prepare
    from keyhole.workflow.sweeps import finished, fronts, read_study, work
    from keyhole.workflow.sweeps.pareto import fronts_figure

    check_outputs({}, {"--figure": figure})
    config = read_study(study)
    url = config.url(study)
    database = study.with_suffix(".db") if config.storage is None else None
    outputs = {"--figure": figure, "its trials": database}
    check_outputs({"STUDY": study, "its source": config.source}, outputs, writable=False)
    source = [config.source] if isinstance(config.source, str) else config.source
    options = InputOptions(variable=config.variable, group_by=config.group_by, anomalies=config.anomalies)
    samples = options.read_samples(source)
    prepared = prepare(samples, config.split, config.seed)
    with stoppable(say):
        work(config, url, prepared, say)
    trials = finished(config, url)
    if figure is not None:
        from keyhole.report import save_figure

        save_figure(fronts_figure(trials, config.metric, warning=prepared.split.warning), figure)
    by_k, by_time = fronts(trials)
    warned = {"warning": prepared.split.warning} if prepared.split.warning else {}
    if as_json:
        print_json({"trials": [vars(one) for one in trials], "by_k": [one.number for one in by_k.trials],
                    "by_time": [one.number for one in by_time.trials], **warned})  # fmt: skip
        return
    echo(f"{len(trials)} trials; Pareto front of {config.metric} against the number of sites:")
    for one in by_k.trials:
        echo(f"  K = {one.k:>4}  {one.error:.4f}  {one.method} + {one.reconstructor}, {one.seconds:.1f} s")
    for warning in warned.values():
        echo(f"warning: {warning}")
