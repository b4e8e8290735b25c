"""Commands that apply a plan: reconstruct, predict, sites, info."""

from __future__ import annotations

from pathlib import Path

from keyhole.cli.bundles import command
from keyhole.cli.options import Json, Outliers, PlanFile, Readings, Time
from keyhole.cli.output import check_outputs, echo, print_data, print_json, say, show_plan
from keyhole.cli.parsing import region_of

__all__ = ["info", "predict", "reconstruct", "sites"]


@command
def reconstruct(
    plan: PlanFile,
    readings: Readings,
    out: Path,
    time: Time = None,
    interval: float | None = None,
    region: str | None = None,
    outliers: Outliers = "flag",
    as_json: Json = False,
) -> None:
    """Reconstruct whole fields, or the mean over a region, from readings at the sites of a plan.

    Parameters
    ----------
    out
        File to write: .nc, .npy or .csv; of a region .csv.
    interval
        Also write prediction intervals of this coverage, such as 0.9; of whole fields to .nc only.
    region
        Write the mean over this region with its prediction interval (0.9 by default) in place of whole fields: a box
        lat=-5..5,lon=190..240, a GeoJSON file, or a mask or weights in a file (.npy, .nc, .csv).
    """
    from keyhole.plan import load
    from keyhole.plan.files import read_readings, write_reconstruction, write_region

    check_outputs({"PLAN": plan, "READINGS": readings, "--region": region}, {"--out": out}, writable=False)
    made, given = load(plan), read_readings(readings)
    if region is not None:
        where, level = region_of(region, "--region"), 0.9 if interval is None else interval
        rows = write_region(made, given, out, where, time or None, level, outliers=outliers)
        if as_json:
            print_json({"out": str(out), "shape": [rows, 3]})
        else:
            say(f"mean over the region in {rows} rows: {out}")
        return
    shape = write_reconstruction(made, given, out, time or None, interval, outliers=outliers)
    if as_json:
        print_json({"out": str(out), "shape": list(shape)})
    else:
        say(f"{shape[0]} samples reconstructed, shape {shape}: {out}")


@command
def predict(
    plan: PlanFile,
    readings: Readings,
    out: Path | None = None,
    time: Time = None,
    outliers: Outliers = "flag",
    as_json: Json = False,
) -> None:
    """Predict the target of a plan from readings at its sites.

    Parameters
    ----------
    out
        CSV file to write; by default a table is printed.
    """
    from keyhole.plan import load
    from keyhole.plan.files import predictions, read_readings, write_predictions

    check_outputs({"PLAN": plan, "READINGS": readings}, {"--out": out}, writable=False)
    predicted = predictions(load(plan), read_readings(readings), time or None, outliers=outliers)
    if out is not None:
        write_predictions(predicted, out)
        say(f"{len(predicted)} samples predicted: {out}")
    if as_json:
        print_json(predicted.to_dict(orient="records"))
    elif out is None:
        echo(predicted.to_string(index=False))


@command
def sites(plan: PlanFile, out: Path | None = None) -> None:
    """Export the sites of a plan in rank order.

    Parameters
    ----------
    out
        File to write: .csv, .geojson or .nc; by default CSV is printed.
    """
    from keyhole.plan import load_without_modules
    from keyhole.plan.files import write_sites

    check_outputs({"PLAN": plan}, {"--out": out}, writable=False)
    found = load_without_modules(plan)
    if out is None:
        print_data(found.sites.to_csv(index=False))
        return
    write_sites(found, out)
    say(f"{found.k} sites: {out}")


@command
def info(plan: PlanFile, as_json: Json = False) -> None:
    """Show the sites of a plan, its errors and how it was made."""
    from keyhole.plan import load_without_modules

    show_plan(load_without_modules(plan), as_json)
