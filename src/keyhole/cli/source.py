"""What a command works on: signals from a file or a named data set, with their target, and methods by name."""

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

__all__ = ["Reading", "Target", "method_names", "split_kind"]

_KINDS: dict[str, TargetKind | None] = {"auto": None, "class": "class", "number": "number"}
_READING = "What is read"
_TARGET = "A target to tell"


@dataclass(frozen=True)
class Target:
    """What is to be told from the sites, in place of the whole."""

    target: Annotated[
        str | None,
        typer.Option(
            help="Column of a .csv file to tell from the sites, a class or a number; 'labels' of a data set.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    target_kind: Annotated[
        str,
        typer.Option(
            help="What the target is: class, number, or auto for a guess by its values.", rich_help_panel=_TARGET
        ),
    ] = "auto"
    predictor: Annotated[
        str, typer.Option(help="What tells the target: auto, linear, network.", rich_help_panel=_TARGET)
    ] = "auto"

    def kind(self) -> TargetKind | None:
        """Give the kind that is asked for; None where it is to be guessed."""
        if self.target_kind not in _KINDS:
            raise typer.BadParameter(f"{self.target_kind!r}: auto, class or number", param_hint="--target-kind")
        kind = _KINDS[self.target_kind]
        if kind is not None and self.target is None:
            raise typer.BadParameter("has no meaning without --target", param_hint="--target-kind")
        return kind


@dataclass(frozen=True)
class Reading:
    """Which part of a source is meant, and what to make of it."""

    variable: Annotated[
        str | None,
        typer.Option(
            help="Variable of the file, where it holds several; several with commas are channels.",
            rich_help_panel=_READING,
        ),
    ] = None
    group: Annotated[
        str | None, typer.Option(help="Group of a NetCDF file or a Zarr store.", rich_help_panel=_READING)
    ] = None
    samples: Annotated[
        str | None,
        typer.Option(help="Dimension that samples run along; time, or else the first.", rich_help_panel=_READING),
    ] = None
    at: Annotated[
        list[str] | None,
        typer.Option(
            help="Place to take of a dimension, the nearest: level=500; repeatable.", rich_help_panel=_READING
        ),
    ] = None
    channels: Annotated[
        int | None, typer.Option(help="Axis of the array that holds channels, if one does.", rich_help_panel=_READING)
    ] = None
    channels_apart: Annotated[
        bool,
        typer.Option(
            "--channels-apart",
            help="Each channel of a cell is a site of its own, with its own sensor.",
            rich_help_panel=_READING,
        ),
    ] = False
    size: Annotated[
        str | None,
        typer.Option(help="Rows and columns to make of each image, 64 or 48x64.", rich_help_panel=_READING),
    ] = None
    colour: Annotated[
        str | None, typer.Option(help="What to make of each image: grey or rgb.", rich_help_panel=_READING)
    ] = None
    missing: Annotated[
        str,
        typer.Option(
            help="Cells that are NaN in some samples: error, or model, to work with what is there.",
            rich_help_panel=_READING,
        ),
    ] = "error"
    anomalies: Annotated[
        str | None,
        typer.Option(
            help="'month': work on anomalies from the monthly climatology; 'none': from the mean.",
            rich_help_panel=_READING,
        ),
    ] = None
    covariates: Annotated[
        str | None,
        typer.Option(
            help="What is known without sensors: year, day, with commas between, or none; by month, the year.",
            rich_help_panel=_READING,
        ),
    ] = None

    @contextmanager
    def store(self, source: str | list[str], memory: str) -> Iterator[Store]:
        """Open a field to be gone through within so much memory."""
        from keyhole.workflow.stored import open_store

        for name in ("channels", "size", "colour"):
            if getattr(self, name) is not None:
                raise typer.BadParameter("has no meaning with --memory, which fields take", param_hint=f"--{name}")
        if self.channels_apart or self.missing != "error":
            raise typer.BadParameter("needs the data in memory", param_hint="--channels-apart, --missing")
        _check_stored([source] if isinstance(source, str) else source)
        places = _places(self.at or [])
        with open_store(
            source, memory, variable=_names(self.variable), group=self.group, samples=self.samples, at=places
        ) as store:
            if self.covariates is not None:
                store = store.with_covariates(*_context_names(self.covariates))
            yield store if self.anomalies is None else store.anomalies(self._cycle())

    def _cycle(self) -> Literal["month"] | None:
        if self.anomalies not in (None, "month", "none"):
            raise typer.BadParameter(f"{self.anomalies!r}: month or none", param_hint="--anomalies")
        return "month" if self.anomalies == "month" else None

    def signals(self, source: str | list[str], target: Target | None = None, *, hint: bool = True) -> Samples:
        """Read signals, with a hint where the seasonal cycle may have been forgotten, unless a plan says it."""
        cycle = self._cycle()
        signals = self._read(source, target or Target())
        if self.covariates is not None:
            signals = signals.with_covariates(*_context_names(self.covariates))
        if self.anomalies is not None:
            signals = signals.anomalies(cycle)
        elif hint and signals.cycle is None and _is_monthly(signals):
            say("the samples are months: --anomalies month would take their seasonal cycle as known")
        return signals.channels_apart() if self.channels_apart else signals

    def _read(self, source: str | list[str], target: Target) -> Samples:
        from keyhole.data import datasets
        from keyhole.data.readers import read

        if not isinstance(source, str) and len(source) == 1:
            source = source[0]
        kind = target.kind()
        options: dict[str, Any] = {
            "variable": _names(self.variable), "group": self.group, "samples": self.samples,
            "at": _places(self.at or []), "channels": self.channels, "size": _sides(self.size), "colour": self.colour,
        }  # fmt: skip
        if isinstance(source, str) and source in datasets.DATASETS:
            _check_named(source, options, target.target, kind)
            return datasets.load(source).with_target(None if target.target is None else datasets.labels(source))
        missing: Any = self.missing
        return read(source, target=target.target, target_kind=kind, missing=missing, **options)


def split_kind(text: str) -> Literal["blocks", "random"] | None:
    """Give the split that an option asks for; None where it is to be found out."""
    if text not in ("auto", "blocks", "random"):
        raise typer.BadParameter(f"{text!r}: auto, blocks or random", param_hint="--split")
    return "blocks" if text == "blocks" else "random" if text == "random" else None


def method_names(text: str, signals: Samples) -> list[str]:
    """Give the methods that an option names; for 'all', those that these signals allow, saying why not the others."""
    from keyhole.placement import SELECTORS

    if text != "all":
        return [name.strip() for name in text.split(",")]
    refusals = {name: make().incompatibility(signals) for name, make in SELECTORS.items()}
    for name, reason in refusals.items():
        if reason is not None:
            say(f"{name} is left out: {reason}")
    return [name for name, reason in refusals.items() if reason is None]


def _check_stored(sources: list[str]) -> None:
    """Refuse what cannot be read some samples at a time, by its ending; a folder is looked into when it is opened."""
    for source in sources:
        if not source.lower().endswith((".nc", ".nc4", ".zarr", ".zarr.zip")) and not Path(source).is_dir():
            raise typer.BadParameter("NetCDF and Zarr are read some at a time, no others", param_hint="--memory")


def _context_names(text: str) -> list[str]:
    return [] if text == "none" else [name.strip() for name in text.split(",")]


def _names(text: str | None) -> str | list[str] | None:
    return [name.strip() for name in text.split(",")] if text is not None and "," in text else text


def _places(pairs: list[str]) -> dict[str, Any] | None:
    """Turn dimension=value into places; numbers where they are."""
    places: dict[str, Any] = {}
    for pair in pairs:
        dim, found, value = pair.partition("=")
        if not found:
            raise typer.BadParameter(f"{pair!r}: dimension=value is needed", param_hint="--at")
        try:
            places[dim] = float(value)
        except ValueError:
            places[dim] = value
    return places or None


def _sides(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    try:
        sides = [int(side) for side in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2):
        raise typer.BadParameter(f"{text!r}: 64 or 48x64 is needed", param_hint="--size")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _check_named(source: str, options: dict[str, Any], target: str | None, kind: TargetKind | None) -> None:
    for option, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"has no meaning for the data set {source}", param_hint=f"--{option}")
    if target not in (None, "labels"):
        raise typer.BadParameter(f"{target!r}: the target of a data set is 'labels'", param_hint="--target")
    if kind == "number":
        raise typer.BadParameter(f"the labels of {source} are classes", param_hint="--target-kind")


def _is_monthly(signals: Samples) -> bool:
    """Whether samples are a month apart, for three years or more."""
    import numpy as np

    if signals.time is None or signals.time.dtype.kind != "M" or len(signals) < 36:
        return False
    days = np.diff(np.sort(signals.time)) / np.timedelta64(1, "D")
    return bool(27 <= np.median(days) <= 32)
