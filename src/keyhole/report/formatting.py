"""Numbers, times and settings as short text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = [
    "STAGES",
    "choice_text",
    "noise_errors",
    "noise_warning",
    "number",
    "percent",
    "plain",
    "quantity",
    "refit_text",
    "share",
    "shorten",
    "split_text",
    "stopped_text",
    "variable_units",
    "with_error",
    "with_units",
]

# What is trained, by the stage of the training history.
STAGES = {"select": "choice of sites", "refit": "reconstructor", "predict": "predictor"}

_THIN = "\N{NARROW NO-BREAK SPACE}"
_SMALLEST = 1e-4
_PARTS = ("train", "validation", "test", "calibration")  # the last one in older plans
_WITH_NOISE = "rmse_noise["  # names of errors with further noise
_DOUBLE = 2.0


def number(value: float) -> str:
    """Format a number with three significant digits, without an exponent where that is short.

    Parameters
    ----------
    value : float
        Any number.

    Returns
    -------
    str
        ``"unknown"`` unless it is finite.

    Examples
    --------
    >>> number(0.12345), number(12345.6), number(1e-7)
    ('0.123', '12346', '1.00e-07')
    """
    if not np.isfinite(value):
        return "unknown"
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e5:
        decimals = 0 if size >= 100 or size == 0 else 2 - int(np.floor(np.log10(size)))
        return f"{value:.{decimals}f}"
    return f"{value:.2e}"


def quantity(value: float, units: str) -> str:
    """Format a number with its units, if there are any.

    Examples
    --------
    >>> quantity(1.5, "K"), quantity(1.5, "")
    ('1.50 K', '1.50')
    """
    return f"{number(value)} {units}".strip()


def with_units(label: str, units: str) -> str:
    """Append units in brackets to a label, if there are any.

    Examples
    --------
    >>> with_units("error", "K")
    'error (K)'
    """
    return f"{label} ({units})" if units else label


def percent(share: float) -> str:
    """Format a share in percent, with more digits close to 0 and to 1.

    Parameters
    ----------
    share : float
        1 for 100 %.

    Returns
    -------
    str

    Examples
    --------
    >>> percent(0.5707).replace(_THIN, " "), percent(0.0042).replace(_THIN, " ")
    ('57 %', '0.4 %')
    """
    if not np.isfinite(share):
        return "unknown"
    if 0 < share < _SMALLEST:
        return f"<{_THIN}{_SMALLEST * 100:g}{_THIN}%"
    if 0 < 1 - share < _SMALLEST:
        return f">{_THIN}{(1 - _SMALLEST) * 100:g}{_THIN}%"
    edge = min(abs(share), abs(1 - share)) * 100
    decimals = 0 if edge >= 1 or edge == 0 else 1 if edge >= 0.1 else 2
    return f"{share * 100:.{decimals}f}{_THIN}%"


def plain(value: Any) -> str:
    """Format a value of any kind as short text.

    Parameters
    ----------
    value : object
        Dates become dates, mappings ``name value, ...``, nested values are put in brackets.

    Returns
    -------
    str

    Examples
    --------
    >>> plain({"k": 3, "weights": [0.5, 1.0]})
    'k 3, weights (0.5, 1)'
    """
    if isinstance(value, np.datetime64):
        return _moment(value)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_within(one)}" for name, one in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return ", ".join(_within(one) for one in value)
    return "none" if value is None else str(value)


def share(value: float, digits: int = 1) -> str:
    """Format a share in percent; one that would round to zero by its size.

    Examples
    --------
    >>> share(0.1234), share(0.0), share(3.7e-10), share(0.00002, digits=2)
    ('12.3%', '0.0%', '4e-08%', '0.002%')
    """
    text = f"{value:.{digits}%}"
    return f"{100 * value:.1g}%" if value and not float(text[:-1]) else text


def with_error(text: str, error: float, form: str, sign: str = "+-") -> str:
    """Append a standard error to a formatted number, if it is known.

    Parameters
    ----------
    text : str
        The number.
    error : float
        Its standard error; NaN if unknown.
    form : str
        Format specification of the error; percents are formatted by `share`.
    sign : str
        What stands between them.

    Examples
    --------
    >>> with_error("56.5%", 0.021, ".1%"), with_error("56.5%", float("nan"), ".1%")
    ('56.5% +- 2.1%', '56.5%')
    """
    if not math.isfinite(error):
        return text
    return f"{text} {sign} {share(error) if form == '.1%' else format(error, form)}"


def split_text(sizes: Mapping[str, Any]) -> str:
    """Format the sizes of a split.

    Parameters
    ----------
    sizes : mapping
        As `Split.sizes` returns them.

    Returns
    -------
    str

    Examples
    --------
    >>> split_text({"train": 6, "test": 2, "kind": "given"})
    'given: 6 train, 2 test'
    >>> split_text({"train": 90, "test": 6, "kind": "blocks", "left_out": 4, "gap": 2})
    'blocks: 90 train, 6 test; 4 left out between them (decorrelation time: 2 samples)'
    """
    reason = f" ({sizes['reason']})" if sizes.get("reason") else ""
    parts = ", ".join(f"{sizes[part]} {part}" for part in _PARTS if part in sizes)
    return f"{sizes['kind']}{reason}: {parts}{_left_out(sizes)}"


def _left_out(sizes: Mapping[str, Any]) -> str:
    """Clause on the samples between the parts that are in none, and why."""
    if not sizes.get("left_out"):
        return ""
    time = f"{sizes['gap']} sample{'s' * (sizes['gap'] != 1)}"
    most = "; 5 % are left out at most" if sizes["left_out"] < 2 * sizes["gap"] else ""
    return f"; {sizes['left_out']} left out between them (decorrelation time: {time}{most})"


def choice_text(by: str) -> str:
    """Return the rule that a method of a comparison was chosen by.

    Examples
    --------
    >>> choice_text("the validation part")
    'the simplest within one standard error of the best by the validation part'
    """
    return f"the simplest within one standard error of the best by {by}"


def noise_errors(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the errors with further measurement noise by its level, from none on; empty where they are not known.

    Examples
    --------
    >>> noise_errors({"rmse": 0.3, "fvu": 0.1, "rmse_noise[1%]": 0.4})
    {'0 %': 0.3, '1 %': 0.4}
    """
    found = {
        f"{name.removeprefix(_WITH_NOISE).removesuffix('%]')} %": error
        for name, error in scores.items()
        if name.startswith(_WITH_NOISE)
    }
    return {"0 %": scores["rmse"], **found} if found else {}


def noise_warning(scores: Mapping[str, float], units: str) -> str:
    """Return a sentence where measurement noise of 1 % of the spread doubles the error; else an empty text.

    Parameters
    ----------
    scores : mapping
        Metrics of one part.
    units : str
        Of the error.

    Examples
    --------
    >>> noise_warning({"rmse": 0.007, "rmse_noise[1%]": 2.1}, "degC").partition(":")[0]
    'with a measurement noise of 1 % of the spread the error is 2.10 degC instead of 0.00700 degC'
    """
    errors = noise_errors(scores)
    if "1 %" not in errors or not errors["1 %"] >= _DOUBLE * errors["0 %"]:
        return ""
    with_noise, without = quantity(errors["1 %"], units), quantity(errors["0 %"], units)
    return (
        f"with a measurement noise of 1 % of the spread the error is {with_noise} instead of {without}: few sensors "
        "are as exact as these readings; name its noise (noise=, --noise) and select again"
    )


def refit_text(record: Mapping[str, Any], k: int) -> str:
    """Say what a plan was fitted to after it was measured.

    Parameters
    ----------
    record : mapping
        ``metadata["refit"]`` of the plan.
    k : int
        Number of sites.

    Returns
    -------
    str

    Examples
    --------
    >>> refit_text({"samples": 494, "same_sites": 19}, 25)
    'all 494 samples, where 6 of the 25 sites are other ones than measured'
    >>> refit_text({"samples": 0, "kept": "no time was left to train dense again"}, 25)
    'training and validation samples, as measured: no time was left to train dense again'
    """
    if not record["samples"]:
        return f"training and validation samples, as measured: {record.get('kept', '')}"
    same = record.get("same_sites", 0)
    if same == k:
        return f"all {record['samples']} samples, at the same sites"
    return f"all {record['samples']} samples, where {k - same} of the {k} sites are other ones than measured"


def stopped_text(record: Mapping[str, Any]) -> str:
    """Say which trainings a callback ended early.

    Parameters
    ----------
    record : mapping
        ``metadata["stopped"]`` of the plan: steps by stage.

    Examples
    --------
    >>> stopped_text({"select": 200, "refit": 40})
    'training ended by a callback: choice of sites at step 200, reconstructor at step 40'
    """
    each = ", ".join(f"{STAGES.get(stage, stage)} at step {step}" for stage, step in record.items())
    return f"training ended by a callback: {each}"


def variable_units(variables: Mapping[str, Mapping[str, Any]], scores: Mapping[str, float]) -> dict[str, str]:
    """Return the units of each variable that has an error of its own.

    Parameters
    ----------
    variables : mapping
        Attributes by variable, as in `SourceInfo.variables`.
    scores : mapping
        Metrics of one part.

    Returns
    -------
    dict of str to str
    """
    return {name: str(said.get("units", "")) for name, said in variables.items() if f"rmse[{name}]" in scores}


def _within(value: Any) -> str:
    """Format one of several values, in brackets if it is several itself."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    return f"({plain(value)})" if several else plain(value)


def shorten(text: str, most: int) -> str:
    """Truncate a text to a number of characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _moment(time: np.datetime64) -> str:
    """Format a time; the day alone at midnight."""
    if np.isnat(time):
        return "unknown"
    day = time.astype("datetime64[D]")
    return str(day if day == time else time.astype("datetime64[m]")).replace("T", " ")
