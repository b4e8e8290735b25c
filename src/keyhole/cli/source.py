"""What a command works on: signals from a file or a named data set, with their target, and methods by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from keyhole.cli.output import say

if TYPE_CHECKING:
    from keyhole.signals import Signals
    from keyhole.target import TargetKind

__all__ = ["method_names", "read_source"]

_KINDS: dict[str, TargetKind | None] = {"auto": None, "class": "class", "number": "number"}


def read_source(
    source: str, *, anomalies: str | None, context: str | None, target: str | None, target_kind: str,
    at: list[str] | None, size: str | None, variable: str | None, missing: Any = "error", **options: Any,
) -> Signals:  # fmt: skip
    """Read signals as the options say, with a hint where the seasonal cycle may have been forgotten."""
    from keyhole import datasets
    from keyhole.readers import read

    if anomalies not in (None, "month", "none"):
        raise typer.BadParameter(f"{anomalies!r}: month or none", param_hint="--anomalies")
    kind = _kind(target_kind, target)
    options |= {"variable": _names(variable), "at": _places(at or []), "size": _sides(size)}
    if source in datasets.DATASETS:
        _check_named(source, options, target, kind)
        signals = datasets.load(source).with_target(None if target is None else datasets.labels(source))
    else:
        signals = read(source, target=target, target_kind=kind, missing=missing, **options)
    if context is not None:
        signals = signals.with_context(*([] if context == "none" else [name.strip() for name in context.split(",")]))
    if anomalies is not None:
        return signals.anomalies("month" if anomalies == "month" else None)
    if signals.cycle is None and _is_monthly(signals):
        say("the samples are months: --anomalies month would take their seasonal cycle as known")
    return signals


def method_names(text: str, signals: Signals) -> list[str]:
    """Give the methods that an option names; for 'all', those that these signals allow, saying why not the others."""
    from keyhole.selectors import SELECTORS

    if text != "all":
        return [name.strip() for name in text.split(",")]
    refusals = {name: make().refusal(signals) for name, make in SELECTORS.items()}
    for name, reason in refusals.items():
        if reason is not None:
            say(f"{name} is left out: {reason}")
    return [name for name, reason in refusals.items() if reason is None]


def _kind(text: str, target: str | None) -> TargetKind | None:
    """Give the kind of the target that an option asks for; None where it is to be guessed."""
    if text not in _KINDS:
        raise typer.BadParameter(f"{text!r}: auto, class or number", param_hint="--target-kind")
    kind = _KINDS[text]
    if kind is not None and target is None:
        raise typer.BadParameter("has no meaning without --target", param_hint="--target-kind")
    return kind


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


def _is_monthly(signals: Signals) -> bool:
    """Whether samples are a month apart, for three years or more."""
    import numpy as np

    if signals.time is None or len(signals) < 36:
        return False
    days = np.diff(signals.time) / np.timedelta64(1, "D")
    return bool(27 <= np.median(days) <= 32)
