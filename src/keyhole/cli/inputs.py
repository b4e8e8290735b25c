"""Option bundles for the input: which data to read, the target, and parsing of splits and method names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from keyhole.cli.output import say

if TYPE_CHECKING:
    from keyhole.data.samples import Samples
    from keyhole.data.target import TargetKind
    from keyhole.workflow.stored import Store

__all__ = ["InputOptions", "TargetOptions", "method_names", "split_kind"]

_KINDS: dict[str, TargetKind | None] = {"auto": None, "class": "class", "number": "number"}
_INPUT = "Input"
_TARGET = "Target to predict"


@dataclass(frozen=True)
class TargetOptions:
    """Target to predict from the sites instead of reconstructing the field."""

    target: Annotated[
        str | None,
        typer.Option(
            help="Column of a table to predict from the sites instead of the field; 'labels' for a built-in data set.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    target_kind: Annotated[
        str,
        typer.Option(
            help="Kind of target: class, number, or auto (inferred from its values).", rich_help_panel=_TARGET
        ),
    ] = "auto"
    predictor: Annotated[
        str, typer.Option(help="Model that predicts the target: auto, linear, network.", rich_help_panel=_TARGET)
    ] = "auto"

    def kind(self) -> TargetKind | None:
        """Return the kind of the target; None if it is to be inferred from the values."""
        if self.target_kind not in _KINDS:
            raise typer.BadParameter(f"{self.target_kind!r}: auto, class or number", param_hint="--target-kind")
        kind = _KINDS[self.target_kind]
        if kind is not None and self.target is None:
            raise typer.BadParameter("requires --target", param_hint="--target-kind")
        return kind


@dataclass(frozen=True)
class InputOptions:
    """What to read from a source and how to preprocess it."""

    variable: Annotated[
        str | None,
        typer.Option(
            help="Variable of a multi-variable file; a comma-separated list becomes channels.",
            rich_help_panel=_INPUT,
        ),
    ] = None
    group: Annotated[
        str | None, typer.Option(help="Group within a NetCDF file or Zarr store.", rich_help_panel=_INPUT)
    ] = None
    samples: Annotated[
        str | None,
        typer.Option(help="Dimension that indexes samples; by default time, else the first.", rich_help_panel=_INPUT),
    ] = None
    at: Annotated[
        list[str] | None,
        typer.Option(
            help="Nearest point of a dimension to select, such as level=500; repeatable.", rich_help_panel=_INPUT
        ),
    ] = None
    channels: Annotated[
        int | None, typer.Option(help="Axis of the array that holds channels, if any.", rich_help_panel=_INPUT)
    ] = None
    channels_apart: Annotated[
        bool,
        typer.Option(
            "--channels-apart",
            help="Treat each channel of a cell as a site with a sensor of its own.",
            rich_help_panel=_INPUT,
        ),
    ] = False
    size: Annotated[
        str | None,
        typer.Option(help="Resize images to rows x columns: 64 or 48x64.", rich_help_panel=_INPUT),
    ] = None
    colour: Annotated[str | None, typer.Option(help="Convert images to grey or rgb.", rich_help_panel=_INPUT)] = None
    missing: Annotated[
        str,
        typer.Option(
            help="Sites with NaN in some samples: error (refuse), or model (fit to the values present).",
            rich_help_panel=_INPUT,
        ),
    ] = "error"
    anomalies: Annotated[
        str | None,
        typer.Option(
            help="Anomalies to work on: month (from the monthly climatology) or none (from the mean).",
            rich_help_panel=_INPUT,
        ),
    ] = None
    covariates: Annotated[
        str | None,
        typer.Option(
            help="Covariates known without sensors: year, day (phase of the annual or daily cycle), comma-separated, "
            "or none; by default year with --anomalies month.",
            rich_help_panel=_INPUT,
        ),
    ] = None

    @contextmanager
    def open_store(self, source: str | list[str], memory: str) -> Iterator[Store]:
        """Open a NetCDF or Zarr field to be processed in chunks of samples within a memory limit."""
        from keyhole.workflow.stored import open_store

        for name in ("channels", "size", "colour"):
            if getattr(self, name) is not None:
                raise typer.BadParameter(
                    "cannot be combined with --memory, which is for NetCDF and Zarr fields", param_hint=f"--{name}"
                )
        if self.channels_apart or self.missing != "error":
            raise typer.BadParameter("cannot be combined with --memory", param_hint="--channels-apart, --missing")
        _check_stored([source] if isinstance(source, str) else source)
        points = _points(self.at or [])
        with open_store(
            source, memory, variable=_names(self.variable), group=self.group, samples=self.samples, at=points
        ) as store:
            if self.covariates is not None:
                store = store.with_covariates(*_covariate_names(self.covariates))
            yield store if self.anomalies is None else store.anomalies(self._cycle())

    def _cycle(self) -> Literal["month"] | None:
        if self.anomalies not in (None, "month", "none"):
            raise typer.BadParameter(f"{self.anomalies!r}: month or none", param_hint="--anomalies")
        return "month" if self.anomalies == "month" else None

    def read_samples(
        self, source: str | list[str], target: TargetOptions | None = None, *, hint: bool = True
    ) -> Samples:
        """Read and preprocess samples.

        Parameters
        ----------
        source
            Paths, or the name of a built-in data set.
        target
            Target to read along with the samples.
        hint
            Whether to suggest ``--anomalies month`` for monthly data without anomalies.

        Returns
        -------
        Samples
            With covariates, anomalies and separate channels as the options say.
        """
        cycle = self._cycle()
        samples = self._read(source, target or TargetOptions())
        if self.covariates is not None:
            samples = samples.with_covariates(*_covariate_names(self.covariates))
        if self.anomalies is not None:
            samples = samples.anomalies(cycle)
        elif hint and samples.cycle is None and _is_monthly(samples):
            say("the samples are monthly: --anomalies month removes the seasonal cycle")
        return samples.channels_apart() if self.channels_apart else samples

    def _read(self, source: str | list[str], target: TargetOptions) -> Samples:
        from keyhole.data import datasets
        from keyhole.data.readers import read

        if not isinstance(source, str) and len(source) == 1:
            source = source[0]
        kind = target.kind()
        options: dict[str, Any] = {
            "variable": _names(self.variable), "group": self.group, "samples": self.samples,
            "at": _points(self.at or []), "channels": self.channels, "size": _sides(self.size), "colour": self.colour,
        }  # fmt: skip
        if isinstance(source, str) and source in datasets.DATASETS:
            _check_named(source, options, target.target, kind)
            return datasets.load(source).with_target(None if target.target is None else datasets.labels(source))
        missing: Any = self.missing
        return read(source, target=target.target, target_kind=kind, missing=missing, **options)


def split_kind(text: str) -> Literal["blocks", "random"] | None:
    """Parse ``--split``; None stands for the default of the data (``auto``)."""
    if text not in ("auto", "blocks", "random"):
        raise typer.BadParameter(f"{text!r}: auto, blocks or random", param_hint="--split")
    return "blocks" if text == "blocks" else "random" if text == "random" else None


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
    refusals = {name: make().incompatibility(samples) for name, make in SELECTORS.items()}
    for name, reason in refusals.items():
        if reason is not None:
            say(f"{name} is skipped: {reason}")
    return [name for name, reason in refusals.items() if reason is None]


def _check_stored(sources: list[str]) -> None:
    """Refuse formats that cannot be read in chunks, by suffix; folders are checked when they are opened."""
    for source in sources:
        if not source.lower().endswith((".nc", ".nc4", ".zarr", ".zarr.zip")) and not Path(source).is_dir():
            raise typer.BadParameter("only NetCDF and Zarr can be read in chunks", param_hint="--memory")


def _covariate_names(text: str) -> list[str]:
    return [] if text == "none" else [name.strip() for name in text.split(",")]


def _names(text: str | None) -> str | list[str] | None:
    return [name.strip() for name in text.split(",")] if text is not None and "," in text else text


def _points(pairs: list[str]) -> dict[str, Any] | None:
    """Parse dimension=value pairs; values become numbers where possible."""
    points: dict[str, Any] = {}
    for pair in pairs:
        dim, found, value = pair.partition("=")
        if not found:
            raise typer.BadParameter(f"{pair!r}: expected dimension=value", param_hint="--at")
        try:
            points[dim] = float(value)
        except ValueError:
            points[dim] = value
    return points or None


def _sides(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    try:
        sides = [int(side) for side in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2):
        raise typer.BadParameter(f"{text!r}: expected 64 or 48x64", param_hint="--size")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _check_named(source: str, options: dict[str, Any], target: str | None, kind: TargetKind | None) -> None:
    for option, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"does not apply to the built-in data set {source}", param_hint=f"--{option}")
    if target not in (None, "labels"):
        raise typer.BadParameter(f"{target!r}: the target of a built-in data set is 'labels'", param_hint="--target")
    if kind == "number":
        raise typer.BadParameter(f"the labels of {source} are classes", param_hint="--target-kind")


def _is_monthly(samples: Samples) -> bool:
    """Whether the samples are monthly and span at least three years."""
    import numpy as np

    if samples.time is None or samples.time.dtype.kind != "M" or len(samples) < 36:
        return False
    days = np.diff(np.sort(samples.time)) / np.timedelta64(1, "D")
    return bool(27 <= np.median(days) <= 32)
