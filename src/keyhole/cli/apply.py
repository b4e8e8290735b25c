"""Commands that apply a plan: reconstruct, predict, sites, info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyhole.cli.options import Json, PlanFile, Readings, Time
from keyhole.cli.output import check_apart, echo, print_data, print_json, say, show_plan

__all__ = ["info", "predict", "reconstruct", "sites"]


def reconstruct(
    plan: PlanFile,
    readings: Readings,
    out: Annotated[Path, typer.Option(help="File to write: .nc, .npy or .csv.")],
    time: Time = None,
    interval: Annotated[
        float | None, typer.Option(help="Also write prediction intervals of this coverage, such as 0.9; .nc only.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Reconstruct whole fields from readings at the sites of a plan."""
    from keyhole.plan.file_format import load
    from keyhole.plan.files import read_readings, write_reconstruction

    check_apart({"PLAN": plan, "READINGS": readings}, {"--out": out})
    shape = write_reconstruction(load(plan), read_readings(readings), out, time or None, interval)
    if as_json:
        print_json({"out": str(out), "shape": list(shape)})
    else:
        say(f"{shape[0]} samples reconstructed, shape {shape}: {out}")


def predict(
    plan: PlanFile,
    readings: Readings,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; by default a table is printed.")] = None,
    time: Time = None,
    as_json: Json = False,
) -> None:
    """Predict the target of a plan from readings at its sites."""
    from keyhole.plan.file_format import load
    from keyhole.plan.files import predictions, read_readings, write_predictions

    check_apart({"PLAN": plan, "READINGS": readings}, {"--out": out})
    predicted = predictions(load(plan), read_readings(readings), time or None)
    if out is not None:
        write_predictions(predicted, out)
        say(f"{len(predicted)} samples predicted: {out}")
    if as_json:
        print_json(predicted.to_dict(orient="records"))
    elif out is None:
        echo(predicted.to_string(index=False))


def sites(
    plan: PlanFile,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .csv, .geojson or .nc; by default CSV is printed.")
    ] = None,
) -> None:
    """Export the sites of a plan in rank order."""
    from keyhole.plan.file_format import load
    from keyhole.plan.files import write_sites

    check_apart({"PLAN": plan}, {"--out": out})
    found = load(plan)
    if out is None:
        print_data(found.sites.to_csv(index=False))
        return
    write_sites(found, out)
    say(f"{found.k} sites: {out}")


def info(plan: PlanFile, as_json: Json = False) -> None:
    """Show the sites of a plan, its errors and how it was made."""
    from keyhole.plan.file_format import load

    show_plan(load(plan), as_json)
