"""Options shared by several commands: single ones as types, and bundles of those that belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from keyhole.cli.output import say
from keyhole.cli.parsing import (
    names_of,
    number_or_array,
    points_of,
    region_of,
    sample_labels,
    settings_of,
    sides_of,
)
from keyhole.core.executors import connected
from keyhole.core.interrupts import stoppable
from keyhole.core.memory import format_size

if TYPE_CHECKING:
    from keyhole.data.climatology import Anomalies
    from keyhole.data.samples import Samples
    from keyhole.data.table_columns import TableColumns
    from keyhole.data.target import TargetKind
    from keyhole.plan.plan import Plan

__all__ = [
    "InputOptions",
    "Json",
    "Methods",
    "Out",
    "Outliers",
    "PlanFile",
    "Readings",
    "Refit",
    "RunOptions",
    "SensorOptions",
    "SettingOptions",
    "SizeOptions",
    "Sources",
    "TargetOptions",
    "Time",
    "WeightOptions",
    "method_names",
]

Sources = Annotated[
    list[str],
    typer.Argument(
        help="Data to read: a NetCDF, Zarr, GRIB, .npy, .npz, .mat, .csv or .parquet file; a folder or zip of images; "
        "several NetCDF files, a folder or a pattern ('data/*.nc'), which are concatenated; or a built-in data set: "
        "sst, digits, mnist, celeba, ipsl, ncep, oisst, isolet, coil20, madelon."
    ),
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file (.keyhole).")]
Readings = Annotated[
    Path,
    typer.Argument(
        help="Readings: .csv with site names as columns and an optional time column, or .npy in rank order."
    ),
]
Time = Annotated[
    list[str] | None, typer.Option(help="Time of each reading, if the file has no time column; repeatable.")
]
Outliers = Annotated[
    Literal["flag", "drop", "trust"],
    typer.Option(
        help="Readings that exceed the range of their site by more than its width: 'flag' warns, 'drop' imputes them "
        "like missing ones and counts them, 'trust' does not check."
    ),
]
Out = Annotated[Path, typer.Option(help="Plan file to write (.keyhole).")]
Methods = Annotated[str, typer.Option(help="Comma-separated selectors; 'all' for every selector that suits the data.")]
Refit = Annotated[
    bool | None,
    typer.Option(
        "--refit/--no-refit",
        help="Select and fit once more on all samples, once errors are measured; the default, unless the data stay in "
        "their file.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class InputOptions:
    """What to read and how to preprocess it.

    Parameters
    ----------
    variable
        Variable of a multi-variable file; a comma-separated list becomes channels.
    group
        Group within a NetCDF file or Zarr store.
    samples
        Dimension that indexes samples, or several (member,time); by default that of time, else the first.
    at
        Nearest point of a dimension to select, such as level=500; repeatable.
    channels
        Axis of the array that holds channels, if any.
    channels_apart
        Treat each channel of a cell as a site with a sensor of its own.
    coordinates
        CSV file with the positions of a table's columns: name, lat, lon (or x, y), depth, ...
    graph
        CSV file with the edges of a graph of the sites: source, target, and length or weight.
    vertical_scale
        Kilometres of horizontal distance that one unit of the vertical coordinate counts like.
    size
        Resize images to rows x columns: 64 or 48x64.
    colour
        Convert images to grey or rgb.
    group_by
        Samples that belong together (subjects, stations, members) and stay in one part of the split: a column of a
        table, a coordinate along the samples, or a .npy file of labels.
    missing
        Sites with NaN in some samples: error (refuse), or model (fit to the values present).
    anomalies
        What is subtracted: none (the mean), month (the mean of each month), harmonics (of the year and of the day), or
        auto (the one that best predicts training samples that are left out).
    covariates
        Covariates known without sensors: year, day (phase of the annual or daily cycle), comma-separated, or none; by
        default those that the anomalies follow.
    """

    panel: ClassVar[str] = "Input"
    variable: str | None = None
    group: str | None = None
    samples: str | None = None
    at: list[str] | None = None
    channels: int | None = None
    channels_apart: bool = False
    coordinates: str | None = None
    graph: str | None = None
    vertical_scale: float | None = None
    size: str | None = None
    colour: str | None = None
    group_by: str | None = None
    missing: str = "error"
    anomalies: str = "auto"
    covariates: str | None = None

    def read_samples(
        self, source: list[str], target: TargetOptions | None = None, *, memory: str | None = None,
        columns: TableColumns | None = None,
    ) -> Samples:  # fmt: skip
        """Read and preprocess samples.

        Parameters
        ----------
        source
            Paths, or the name of a built-in data set.
        target
            Target to read along with the samples.
        memory
            Bytes that may be taken; see `keyhole.read`.

        Returns
        -------
        Samples
            With covariates, anomalies and separate channels as the options say.
        """
        kind = self._anomalies()
        samples = self._read(source[0] if len(source) == 1 else source, target or TargetOptions(), memory, columns)
        if samples.memory is not None:
            within = f"in passes within {format_size(samples.memory)} of memory"
            say(f"{_size_of(samples)} stay where they are stored, and are read {within}")
        if self.covariates is not None:
            samples = samples.with_covariates(*self._covariates())
        samples = samples.anomalies_as_asked(kind)
        return samples.channels_apart() if self.channels_apart else samples

    def read_like(self, plan: Plan, source: list[str], *, memory: str | None = None) -> Samples:
        """Read samples as those of a plan were: with its target and its treatment of missing values."""
        from keyhole.workflow.changes import groups_column

        options = replace(self, missing="model") if plan.metadata.get("missing") == "model" else self
        options = replace(options, group_by=options.group_by or groups_column(plan))
        if plan.predictor is None:
            return options.read_samples(source, memory=memory, columns=plan.origin.columns)
        kind = "class" if plan.predictor.is_class else "number"
        target = TargetOptions(plan.predictor.target, kind)
        return options.read_samples(source, target, memory=memory, columns=plan.origin.columns)

    def _read(
        self, source: str | list[str], target: TargetOptions, memory: str | None, columns: TableColumns | None
    ) -> Samples:
        """Read a file, several, or a built-in data set."""
        from keyhole.data import datasets
        from keyhole.data.readers import read

        kind = target.kind()
        options: dict[str, Any] = {
            "variable": names_of(self.variable), "group": self.group, "samples": names_of(self.samples),
            "at": points_of(self.at or []), "channels": self.channels, "size": sides_of(self.size),
            "colour": self.colour, "coordinates": self.coordinates, "graph": self.graph,
            "vertical_scale": self.vertical_scale, "groups": sample_labels(self.group_by),
        }  # fmt: skip
        if not isinstance(source, str) or source not in datasets.DATASETS:
            missing: Any = self.missing
            options |= {"target": target.target, "target_kind": kind, "columns": columns}
            return read(source, missing=missing, memory=memory, **options)
        for option, value in options.items():
            if value is not None:
                name = "group-by" if option == "groups" else option.replace("_", "-")
                raise typer.BadParameter(f"does not apply to the built-in data set {source}", param_hint=f"--{name}")
        if target.target not in (None, "labels"):
            raise typer.BadParameter(
                f"{target.target!r}: the target of a built-in data set is 'labels'", param_hint="--target"
            )
        if kind == "number":
            raise typer.BadParameter(f"the labels of {source} are classes", param_hint="--target-kind")
        return datasets.load(source).with_target(None if target.target is None else datasets.labels(source))

    def _anomalies(self) -> Anomalies:
        """Parse ``--anomalies``."""
        from keyhole.data.climatology import ANOMALIES

        for kind in ANOMALIES:
            if self.anomalies == kind:
                return kind
        raise typer.BadParameter(f"{self.anomalies!r}: {', '.join(ANOMALIES)}", param_hint="--anomalies")

    def _covariates(self) -> list[str]:
        """Parse ``--covariates``."""
        return [] if self.covariates in (None, "none") else [name.strip() for name in str(self.covariates).split(",")]


@dataclass(frozen=True)
class SizeOptions:
    """Memory limit, and where passes through the data run.

    Parameters
    ----------
    memory
        Memory limit, such as 2GiB, by default half of what is free: a NetCDF or Zarr field that takes more than a third
        of it stays in its file and is read a few samples at a time.
    scheduler
        Address of a dask scheduler, such as tcp://10.0.0.5:8786, on whose workers passes through the data run.
    """

    panel: ClassVar[str] = "Size"
    memory: str | None = None
    scheduler: str | None = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Run the passes of a block on the scheduler's workers, if there is one, and let signals stop it."""
        with connected(self.scheduler), stoppable(say):
            yield


@dataclass(frozen=True)
class TargetOptions:
    """Target to predict from the sites instead of reconstructing the field.

    Parameters
    ----------
    target
        Column of a table to predict from the sites instead of the field; 'labels' for a built-in data set.
    target_kind
        Kind of target: class, number, or auto (inferred from its values).
    predictor
        Model that predicts the target: auto, linear, network.
    """

    panel: ClassVar[str] = "Target to predict"
    target: str | None = None
    target_kind: str = "auto"
    predictor: str = "auto"

    def kind(self) -> TargetKind | None:
        """Return the kind of the target; None if it is to be inferred from the values."""
        kinds: dict[str, TargetKind | None] = {"auto": None, "class": "class", "number": "number"}
        if self.target_kind not in kinds:
            raise typer.BadParameter(f"{self.target_kind!r}: auto, class or number", param_hint="--target-kind")
        kind = kinds[self.target_kind]
        if kind is not None and self.target is None:
            raise typer.BadParameter("requires --target", param_hint="--target-kind")
        return kind


@dataclass(frozen=True)
class WeightOptions:
    """Loss weights of the sites, and the measurement noise of the sensors.

    Parameters
    ----------
    weights
        Loss weights: area (cell area, the default on a lat/lon grid), variance (columns count alike, the default of
        tables), none, a region of interest as for --allow, or a .npy, .nc or .csv file of weights.
    noise
        Standard deviation of the measurement noise in the data's units, or a file of them as for --costs; without it,
        searches assume 1 % of the spread (0: perfect sensors).
    """

    panel: ClassVar[str] = "Loss weights and measurement noise"
    weights: str | None = None
    noise: str | None = None

    def apply(self, samples: Any) -> Any:
        """Return the samples (or the out-of-core store) with these loss weights and this measurement noise."""
        if self.weights is not None:
            plain = self.weights in ("area", "variance", "none")
            samples = samples.with_weights(self.weights if plain else region_of(self.weights, "--weights"))
        return samples if self.noise is None else samples.with_noise(number_or_array(self.noise))


@dataclass(frozen=True)
class SensorOptions:
    """Sensors that are not simply one at each site.

    Parameters
    ----------
    sensors
        CSV file of sensors to select among, in place of one at each site: columns of coordinates, and name, noise,
        cost, availability, kind and variable as needed; repeatable. Costs count with --cost-limit.
    interpolation
        How a sensor between sites reads the field: linear or nearest.
    """

    panel: ClassVar[str] = "Sensors"
    sensors: list[str] | None = None
    interpolation: str = "linear"

    def apply(self, samples: Samples) -> Samples:
        """Return the samples with these sensors."""
        if self.interpolation not in ("linear", "nearest"):
            raise typer.BadParameter(f"{self.interpolation!r}: linear or nearest", param_hint="--interpolation")
        if not self.sensors:
            return samples
        from keyhole.data.sensors import Sensors

        method: Any = self.interpolation
        return samples.with_sensors([Sensors.at(path, interpolation=method) for path in self.sensors])


@dataclass(frozen=True)
class SettingOptions:
    """Settings of selectors and models.

    Parameters
    ----------
    setting
        Setting of a part, name=value: of the selector by its name (n_components=300), of the models with a prefix
        (reconstructor.width=512, predictor.width=64); repeatable.
    """

    setting: Annotated[list[str] | None, typer.Option("--set")] = None

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return settings_of(self.setting or [])


@dataclass(frozen=True)
class RunOptions:
    """Split, time limit, seed and device of a run.

    Parameters
    ----------
    split
        Train/validation/test split: blocks (contiguous in time), random, groups (see --group-by), or auto: groups if
        there are any, else blocks for time series, else random.
    time_limit
        Time limit in seconds, for each method (and K) where there are several; training stops with the best model so
        far.
    seed
        Random seed; same seed, machine and thread count give the same result.
    device
        Device to train on: auto, cpu or cuda.
    """

    split: str = "auto"
    time_limit: float | None = None
    seed: Annotated[int, typer.Option(min=0)] = 0
    device: str = "auto"

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the workflows."""
        if self.split not in ("auto", "blocks", "random", "groups"):
            raise typer.BadParameter(f"{self.split!r}: auto, blocks, random or groups", param_hint="--split")
        split = None if self.split == "auto" else self.split
        return {"split": split, "time_limit": self.time_limit, "seed": self.seed, "device": self.device}


def method_names(text: str, samples: Samples) -> list[str]:
    """Parse comma-separated method names.

    Parameters
    ----------
    text
        Names, or ``"all"`` for every registered selector that is compatible with the samples; why another is not is
        printed.
    samples
        Data that the methods are to run on.
    """
    from keyhole.placement import SELECTORS

    if text != "all":
        return [name.strip() for name in text.split(",")]
    refusals = {name: make().refusal(samples) for name, make in SELECTORS.items()}
    for name, reason in refusals.items():
        if reason is not None:
            say(f"{name} is skipped: {reason}")
    return [name for name, reason in refusals.items() if reason is None]


def _size_of(samples: Samples) -> str:
    """Size of the values, as read."""
    return format_size(len(samples) * samples.channels * len(samples.sites) * samples.data.dtype.itemsize)
