"""Arguments and options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Device",
    "Json",
    "K",
    "Method",
    "Methods",
    "OtherReconstructorOption",
    "PlanFile",
    "Precision",
    "Readings",
    "ReconstructorOption",
    "Seed",
    "SetOption",
    "Source",
    "SplitKind",
    "Time",
    "TimeLimit",
]

Source = Annotated[
    list[str],
    typer.Argument(
        help="Data to read: a NetCDF, Zarr, GRIB, .npy, .npz, .mat, .csv or .parquet file; a folder or zip of images; "
        "several NetCDF files, a folder or a pattern ('data/*.nc'), which are concatenated; or a built-in data set: "
        "sst, digits, mnist, celeba, ipsl, ncep, oisst, isolet, coil20, madelon."
    ),
]
ReconstructorOption = Annotated[
    str,
    typer.Option(
        help="Model that reconstructs the field: auto (best on validation), ridge, optimal_interpolation, kernel, "
        "dense, dense_conv, resnet, dcgan, residual, ensemble."
    ),
]
OtherReconstructorOption = Annotated[
    str | None, typer.Option("--reconstructor", help="Reconstructor to fit; by default the plan's kind and settings.")
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file (.keyhole).")]
Readings = Annotated[
    Path,
    typer.Argument(
        help="Readings: .csv with site names as columns and an optional time column, or .npy in rank order."
    ),
]
K = Annotated[int, typer.Option("-k", "--sites", help="Number of sites to select.")]
Method = Annotated[
    str,
    typer.Option(
        help="Selector: auto (best of several on validation), greedy, qr, exchange, learned or a mask distribution "
        "(vln, hnet, iln, sct), lasso, cae, ...: see docs/methods.md."
    ),
]
Methods = Annotated[str, typer.Option(help="Comma-separated selectors; 'all' for every selector that suits the data.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Setting of the selector, name=value; repeatable.")]
Time = Annotated[
    list[str] | None, typer.Option(help="Time of each reading, if the file has no time column; repeatable.")
]
TimeLimit = Annotated[
    float | None, typer.Option(help="Time limit in seconds; training stops with the best model so far.")
]
SplitKind = Annotated[
    str,
    typer.Option(
        "--split",
        help="Train/validation/test split: blocks (contiguous in time), random, or auto: blocks for time series, else "
        "random.",
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, help="Random seed; same seed, machine and thread count give the same result.")
]
Device = Annotated[str, typer.Option(help="Device to train on: auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="Precision of training: auto, 32-true or bf16-mixed.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
