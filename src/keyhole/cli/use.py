"""Commands that use a plan: reconstruct, predict, sites, info."""

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
        float | None, typer.Option(help="Share of truths that a band around it is to hold, 0.9; written to .nc.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rebuild whole signals from readings at the sites of a plan."""
    from keyhole.plan.files import read_readings, write_reconstruction
    from keyhole.plan.plan import load

    check_apart({"PLAN": plan, "READINGS": readings}, {"--out": out})
    reconstructed = write_reconstruction(load(plan), read_readings(readings), out, time or None, interval)
    if as_json:
        print_json({"out": str(out), "shape": list(reconstructed)})
    else:
        say(f"{reconstructed[0]} rebuilt, shape {reconstructed}: {out}")


def predict(
    plan: PlanFile,
    readings: Readings,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; a table on standard output without it.")] = None,
    time: Time = None,
    as_json: Json = False,
) -> None:
    """Tell the target of a plan from readings at its sites."""
    from keyhole.plan.files import predictions, read_readings, write_predictions
    from keyhole.plan.plan import load

    check_apart({"PLAN": plan, "READINGS": readings}, {"--out": out})
    told = predictions(load(plan), read_readings(readings), time or None)
    if out is not None:
        write_predictions(told, out)
        say(f"{len(told)} predicted: {out}")
    if as_json:
        print_json(told.to_dict(orient="records"))
    elif out is None:
        echo(told.to_string(index=False))


def sites(
    plan: PlanFile,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .csv, .geojson or .nc; CSV on standard output without it.")
    ] = None,
) -> None:
    """Write the sites of a plan, in rank order, for other tools."""
    from keyhole.plan.plan import load
    from keyhole.plan.site_files import write_sites

    check_apart({"PLAN": plan}, {"--out": out})
    found = load(plan)
    if out is None:
        print_data(found.sites.to_csv(index=False))
        return
    write_sites(found, out)
    say(f"{found.k} sites: {out}")


def info(plan: PlanFile, as_json: Json = False) -> None:
    """Show the sites of a plan and how it was made."""
    from keyhole.plan.plan import load

    show_plan(load(plan), as_json)
