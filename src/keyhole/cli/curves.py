"""The command curve: error against the number of sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.cli.bundles import command
from keyhole.cli.constraint_options import ExistingOptions, RegionOptions, constraints_of
from keyhole.cli.options import (
    InputOptions,
    Json,
    Methods,
    RunOptions,
    SensorOptions,
    SettingOptions,
    SizeOptions,
    Sources,
    TargetOptions,
    WeightOptions,
    method_names,
)
from keyhole.cli.output import check_outputs, say, show_curve, texts_of
from keyhole.cli.parsing import whole_numbers

if TYPE_CHECKING:
    from keyhole.workflow import Curve

__all__ = ["curve"]


@command
def curve(
    source: Sources,
    *,
    k: Annotated[str, typer.Option("-k", "--sites")] = "5,10,20,50",
    methods: Methods = "greedy,qr,variance,random",
    target_error: float | None = None,
    metric: str | None = None,
    reconstructor: str = "ridge",
    settings: SettingOptions,
    out: Path | None = None,
    plot: Path | None = None,
    as_json: Json = False,
    run: RunOptions,
    precision: str = "auto",
    size: SizeOptions,
    region: RegionOptions,
    existing: ExistingOptions,
    weighting: WeightOptions,
    sensing: SensorOptions,
    target: TargetOptions,
    inputs: InputOptions,
) -> None:
    """Show the error against the number of sites, and the smallest K that reaches a target error.

    Parameters
    ----------
    k
        Comma-separated numbers of sites.
    target_error
        Validation error to reach: find the smallest K by bisection; selectors that are not nested are run again for
        each K tried.
    metric
        Error to report: fvu (unexplained variance), rmse, mse, or an error of the target.
    reconstructor
        Reconstructor fitted to the sites of every method.
    precision
        Precision of training: auto, 32-true or bf16-mixed.
    out
        Table to write: .csv.
    plot
        Figure to write: .png, .svg or .pdf.
    """
    from keyhole.workflow.curves import CurveInterrupted
    from keyhole.workflow.curves import curve as run_curve

    ks = whole_numbers(k)
    if out is not None and out.suffix.lower() != ".csv":
        raise typer.BadParameter(f"{out}: expected .csv", param_hint="--out")
    check_outputs({"SOURCE": source, **texts_of(region, existing, weighting, sensing)}, {"--out": out, "--plot": plot})
    constraints = constraints_of(region, existing)
    with size.connected():
        samples = sensing.apply(weighting.apply(inputs.read_samples(source, target, memory=size.memory)))
        samples = samples.with_constraints(constraints)
        try:
            found = run_curve(
                samples, ks, method_names(methods, samples), reconstructor=reconstructor, predictor=target.predictor,
                settings=settings.values(), target_error=target_error, metric=metric, precision=precision,
                **run.arguments(),
            )  # fmt: skip
        except CurveInterrupted as stop:
            if stop.curve.rows:
                _deliver(stop.curve, out, plot, as_json)
            raise
    _deliver(found, out, plot, as_json)


def _deliver(curve: Curve, out: Path | None, plot: Path | None, as_json: bool) -> None:
    """Print a curve, then write it, so that the result is shown even if the disk is full."""
    show_curve(curve, as_json)
    if out is not None:
        from keyhole.core.storage import replacing

        with replacing(out) as file:
            file.write(curve.frame().to_csv(index=False).encode())
        say(f"table  {out}")
    if plot is not None:
        from keyhole.report import save_figure

        save_figure(curve.plot(), plot)
        say(f"figure {plot}")
