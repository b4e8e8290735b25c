"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Anomalies",
    "AnyK",
    "At",
    "Channels",
    "ChannelsApart",
    "ColourOption",
    "ContextOption",
    "Device",
    "GroupOption",
    "Json",
    "K",
    "Method",
    "Methods",
    "Missing",
    "PlanFile",
    "Precision",
    "Predictor",
    "Readings",
    "Rebuilder",
    "Samples",
    "Seed",
    "SetOption",
    "Size",
    "Source",
    "TargetKindOption",
    "TargetOption",
    "Time",
    "TimeLimit",
    "Variable",
]

Source = Annotated[
    str,
    typer.Argument(
        help="A .npy, .npz, .mat, NetCDF, Zarr, GRIB, .csv or .parquet file, a folder or zip of images, or a data set: "
        "sst, digits, mnist, celeba, ipsl, ncep, oisst, isolet, coil20, madelon."
    ),
]
Rebuilder = Annotated[
    str, typer.Option(help="auto, ridge, kriging, kernel, dense, detail, resnet, dcgan, residual, ensemble.")
]
Missing = Annotated[
    str, typer.Option(help="Cells that are NaN in some samples: error, or model, to work with what is there.")
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file.")]
Readings = Annotated[Path, typer.Argument(help="CSV (an optional time column, then site names) or .npy in rank order.")]
K = Annotated[int, typer.Option("-k", "--sites", help="How many sites to choose.")]
AnyK = Annotated[
    int | None, typer.Option("-k", "--sites", help="How many sites to choose, if no limit of cost says so.")
]
Variable = Annotated[
    str | None, typer.Option(help="Variable of the file, where it holds several; several with commas are channels.")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Group of a NetCDF file or a Zarr store.")]
Samples = Annotated[str | None, typer.Option(help="Dimension that samples run along; time, or else the first.")]
At = Annotated[
    list[str] | None,
    typer.Option("--at", help="Place to take of a dimension, the nearest: level=500; repeatable."),
]
Size = Annotated[str | None, typer.Option(help="Rows and columns to make of each image, 64 or 48x64.")]
ColourOption = Annotated[str | None, typer.Option("--colour", help="What to make of each image: grey or rgb.")]
Channels = Annotated[int | None, typer.Option(help="Axis of the array that holds channels, if one does.")]
ChannelsApart = Annotated[
    bool, typer.Option("--channels-apart", help="Each channel of a cell is a site of its own, with its own sensor.")
]
Anomalies = Annotated[
    str | None, typer.Option(help="'month': work on anomalies from the monthly climatology; 'none': from the mean.")
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context", help="What is known without sensors: year, day, with commas between, or none; by month, the year."
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", help="Column of a .csv file to tell from the sites, a class or a number; 'labels' of a data set."
    ),
]
TargetKindOption = Annotated[
    str, typer.Option("--target-kind", help="What the target is: class, number, or auto for a guess by its values.")
]
Predictor = Annotated[str, typer.Option(help="What tells the target: auto, linear, network.")]
Method = Annotated[
    str, typer.Option(help="auto, learned, a law (vln, hnet, iln, sct), greedy, qr, lasso, cae, ...: docs/methods.md.")
]
Methods = Annotated[str, typer.Option(help="Methods, with commas between; 'all' for every one.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Setting of the method, name=value; may be repeated.")
]
Time = Annotated[list[str] | None, typer.Option(help="Time of a reading, once for each, where the file holds none.")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds that learning may take.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same machine and threads: same result.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto, 32-true, or bf16-mixed.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
