"""Arguments and options that several commands share."""

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
    "OtherRebuilder",
    "PlanFile",
    "Precision",
    "Readings",
    "Rebuilder",
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
        help="A .npy, .npz, .mat, NetCDF, Zarr, GRIB, .csv or .parquet file, a folder or zip of images, several NetCDF "
        "files, a folder or a pattern ('data/*.nc') of them, which are joined, or a data set: "
        "sst, digits, mnist, celeba, ipsl, ncep, oisst, isolet, coil20, madelon."
    ),
]
Rebuilder = Annotated[
    str,
    typer.Option(
        help="auto, ridge, optimal_interpolation, kernel, dense, dense_conv, resnet, dcgan, residual, ensemble."
    ),
]
OtherRebuilder = Annotated[
    str | None, typer.Option("--reconstructor", help="Another reconstructor than the plan's: auto, ridge, kernel, ...")
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file.")]
Readings = Annotated[Path, typer.Argument(help="CSV (an optional time column, then site names) or .npy in rank order.")]
K = Annotated[int, typer.Option("-k", "--sites", help="How many sites to choose.")]
Method = Annotated[
    str, typer.Option(help="auto, learned, a law (vln, hnet, iln, sct), greedy, qr, lasso, cae, ...: docs/methods.md.")
]
Methods = Annotated[str, typer.Option(help="Methods, with commas between; 'all' for every one.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Setting of the method, name=value; may be repeated.")
]
Time = Annotated[list[str] | None, typer.Option(help="Time of a reading, once for each, where the file holds none.")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds that learning may take.")]
SplitKind = Annotated[
    str,
    typer.Option(
        "--split",
        help="How samples are split in train, validation and test: blocks (of time), random, or auto: blocks where "
        "samples have a time or look like a series.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same machine and threads: same result.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto, 32-true, or bf16-mixed.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
