"""The command that tells how many sites are enough: curve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.cli.constraints import (
    Allow,
    Distance,
    Fixed,
    Forbid,
    Groups,
    Noise,
    Weights,
    constraints_of,
    counted,
)
from keyhole.cli.options import (
    Anomalies,
    At,
    Channels,
    ChannelsApart,
    ColourOption,
    ContextOption,
    Device,
    GroupOption,
    Json,
    Methods,
    Missing,
    Precision,
    Predictor,
    Samples,
    Seed,
    Size,
    Source,
    TargetKindOption,
    TargetOption,
    Variable,
)
from keyhole.cli.output import check_suffix, check_writable, say, show_curve
from keyhole.cli.source import method_names, read_source
from keyhole.interrupts import stoppable

if TYPE_CHECKING:
    from keyhole.curves import Curve

__all__ = ["curve"]


def curve(
    source: Source,
    k: Annotated[str, typer.Option("-k", "--sites", help="Numbers of sites, with commas between.")] = "5,10,20,50",
    methods: Methods = "greedy,qr,variance,random",
    target_error: Annotated[
        float | None,
        typer.Option(
            help="Error to reach on validation: find the fewest sites, exact to one, by bisection; a method that is "
            "not nested chooses anew for each try."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Error that counts: fvu (the variance left), rmse, mse; one of the target.")
    ] = None,
    reconstructor: Annotated[str, typer.Option(help="The reconstructor that all methods share.")] = "ridge",
    allow: Allow = None,
    forbid: Forbid = None,
    fixed: Fixed = None,
    distance: Distance = None,
    groups: Groups = None,
    weights: Weights = None,
    noise: Noise = None,
    missing: Missing = "error",
    target: TargetOption = None,
    target_kind: TargetKindOption = "auto",
    predictor: Predictor = "auto",
    variable: Variable = None,
    group: GroupOption = None,
    samples: Samples = None,
    at: At = None,
    channels: Channels = None,
    channels_apart: ChannelsApart = False,
    size: Size = None,
    colour: ColourOption = None,
    anomalies: Anomalies = None,
    context: ContextOption = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds that learning may take, for each K.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    out: Annotated[Path | None, typer.Option(help="Table to write, .csv.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Figure to write, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Show the error against the number of sites, and how many are enough."""
    from keyhole.curves import Stopped
    from keyhole.curves import curve as run_curve

    ks = _numbers(k)
    check_suffix(out, "--out", ".csv")
    check_suffix(plot, "--plot", ".png", ".svg", ".pdf")
    check_writable(out, plot)
    asked = constraints_of(allow, forbid, fixed, distance, None, None, groups)
    signals = read_source(
        source, variable=variable, group=group, samples=samples, at=at, channels=channels, size=size, colour=colour,
        anomalies=anomalies, context=context, target=target, target_kind=target_kind, missing=missing,
    )  # fmt: skip
    signals = counted(signals.channels_apart() if channels_apart else signals, weights, noise).constrained(asked)
    with stoppable(say):
        try:
            found = run_curve(
                signals, ks, method_names(methods, signals), reconstructor=reconstructor, predictor=predictor,
                target_error=target_error, metric=metric, time_limit=time_limit, seed=seed, device=device,
                precision=precision,
            )  # fmt: skip
        except Stopped as stop:
            if stop.curve.rows:
                _deliver(stop.curve, out, plot, as_json)
            raise
    _deliver(found, out, plot, as_json)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: whole numbers with commas between", param_hint="-k") from error


def _deliver(curve: Curve, out: Path | None, plot: Path | None, as_json: bool) -> None:
    """Print what there is of a curve, then write it: a disk that is full does not take the answer with it."""
    show_curve(curve, as_json)
    if out is not None:
        from keyhole.storage import replacing

        with replacing(out) as file:
            file.write(curve.frame().to_csv(index=False).encode())
        say(f"table  {out}")
    if plot is not None:
        from keyhole.report import save_figure

        save_figure(curve.plot(), plot)
        say(f"figure {plot}")
