"""The command curve: error against the number of sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.cli.constraints import ExistingOptions, RegionOptions, WeightOptions, constraints_of
from keyhole.cli.inputs import InputOptions, TargetOptions, method_names, split_kind
from keyhole.cli.option_bundles import expand_bundles
from keyhole.cli.options import Device, Json, Methods, Precision, Seed, Source, SplitKind
from keyhole.cli.output import check_apart, check_suffix, check_writable, say, show_curve, texts_of
from keyhole.core.interrupts import stoppable

if TYPE_CHECKING:
    from keyhole.workflow.curves import Curve

__all__ = ["curve"]


@expand_bundles
def curve(
    source: Source,
    region: RegionOptions,
    existing: ExistingOptions,
    weighting: WeightOptions,
    target: TargetOptions,
    inputs: InputOptions,
    k: Annotated[str, typer.Option("-k", "--sites", help="Comma-separated numbers of sites.")] = "5,10,20,50",
    methods: Methods = "greedy,qr,variance,random",
    target_error: Annotated[
        float | None,
        typer.Option(
            help="Validation error to reach: find the smallest K by bisection; selectors that are not nested are run "
            "again for each K tried."
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Error to report: fvu (unexplained variance), rmse, mse, or an error of the target."),
    ] = None,
    reconstructor: Annotated[str, typer.Option(help="Reconstructor fitted to the sites of every method.")] = "ridge",
    time_limit: Annotated[float | None, typer.Option(help="Time limit in seconds for each method and K.")] = None,
    split: SplitKind = "auto",
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    out: Annotated[Path | None, typer.Option(help="Table to write: .csv.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Figure to write: .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Show the error against the number of sites, and the smallest K that reaches a target error."""
    from keyhole.workflow.curves import CurveInterrupted
    from keyhole.workflow.curves import curve as run_curve

    ks = _numbers(k)
    check_suffix(out, "--out", ".csv")
    check_suffix(plot, "--plot", ".png", ".svg", ".pdf")
    check_apart({"SOURCE": source, **texts_of(region, existing, weighting)}, {"--out": out, "--plot": plot})
    check_writable(out, plot)
    constraints = constraints_of(region, existing)
    samples = weighting.apply(inputs.read_samples(source, target)).with_constraints(constraints)
    with stoppable(say):
        try:
            found = run_curve(
                samples, ks, method_names(methods, samples), reconstructor=reconstructor, predictor=target.predictor,
                target_error=target_error, metric=metric, split=split_kind(split), time_limit=time_limit, seed=seed,
                device=device, precision=precision,
            )  # fmt: skip
        except CurveInterrupted as stop:
            if stop.curve.rows:
                _deliver(stop.curve, out, plot, as_json)
            raise
    _deliver(found, out, plot, as_json)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: expected comma-separated whole numbers", param_hint="-k") from error


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
