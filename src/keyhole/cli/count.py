"""The command that tells how many sites are enough: curve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.cli.constraints import Counting, Kept, Where, constraints_of
from keyhole.cli.options import Device, Json, Methods, Precision, Seed, Source, SplitKind
from keyhole.cli.output import check_apart, check_suffix, check_writable, say, show_curve, texts_of
from keyhole.cli.source import Reading, Target, method_names, split_kind
from keyhole.cli.spread import spread
from keyhole.core.interrupts import stoppable

if TYPE_CHECKING:
    from keyhole.workflow.curves import Curve

__all__ = ["curve"]


@spread
def curve(
    source: Source,
    where: Where,
    kept: Kept,
    counting: Counting,
    target: Target,
    reading: Reading,
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
    time_limit: Annotated[float | None, typer.Option(help="Seconds that learning may take, for each K.")] = None,
    split: SplitKind = "auto",
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    out: Annotated[Path | None, typer.Option(help="Table to write, .csv.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Figure to write, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Show the error against the number of sites, and how many are enough."""
    from keyhole.workflow.curves import CurveInterrupted
    from keyhole.workflow.curves import curve as run_curve

    ks = _numbers(k)
    check_suffix(out, "--out", ".csv")
    check_suffix(plot, "--plot", ".png", ".svg", ".pdf")
    check_apart({"SOURCE": source, **texts_of(where, kept, counting)}, {"--out": out, "--plot": plot})
    check_writable(out, plot)
    asked = constraints_of(where, kept)
    signals = counting.of(reading.signals(source, target)).with_constraints(asked)
    with stoppable(say):
        try:
            found = run_curve(
                signals, ks, method_names(methods, signals), reconstructor=reconstructor, predictor=target.predictor,
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
        raise typer.BadParameter(f"{text!r}: whole numbers with commas between", param_hint="-k") from error


def _deliver(curve: Curve, out: Path | None, plot: Path | None, as_json: bool) -> None:
    """Print what there is of a curve, then write it: a disk that is full does not take the answer with it."""
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
