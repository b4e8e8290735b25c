"""The report as a self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from keyhole.core.storage import replacing
from keyhole.report import page_text
from keyhole.report.curves import curve_figure, differs, training_figure
from keyhole.report.figures import error_figure, interval_figure, samples_figure, sites_figure
from keyhole.report.formatting import choice_text
from keyhole.report.reliability import coverage_figure, failures_figure
from keyhole.report.report_data import ReportData
from keyhole.report.style import NARROW, WIDE, png
from keyhole.report.target import target_figure
from keyhole.workflow.comparison import Comparison

__all__ = ["write_report"]

# Pixels of the page for one inch of a figure: text of 9.5 points is then as large as the page's own small text.
_PIXELS = 104


@dataclass(frozen=True)
class _Picture:
    """A figure in two layouts, as data URIs.

    Parameters
    ----------
    wide, narrow : str
        For wide and for narrow screens.
    width, height : int
        Pixels of the wide one on the page.
    """

    wide: str
    narrow: str
    width: int
    height: int

    @classmethod
    def of(cls, draw: Callable[..., Figure]) -> _Picture:
        """Render a figure in both layouts."""
        wide, narrow = draw(width=WIDE), draw(width=NARROW)
        width, height = (round(_PIXELS * float(inches)) for inches in wide.get_size_inches())
        return cls(_uri(wide), _uri(narrow), width, height)


def write_report(comparison: Comparison, path: str | Path) -> None:
    """Write a self-contained HTML page about the chosen plan of a comparison and the other methods.

    Figures are embedded and nothing is loaded from the network. An existing file is replaced only when the new one is
    complete.

    Parameters
    ----------
    comparison : Comparison
        Result of `compare`; the page is about ``comparison.choice``.
    path : str or Path
        HTML file to write.

    Raises
    ------
    StorageError
        If the file cannot be written.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.workflow.comparison import compare
    >>> write_report(compare(kh.datasets.sst(), 25, ["qr", "greedy"]), "report.html")  # doctest: +SKIP
    """
    page = _render(comparison)
    with replacing(Path(path)) as file:
        file.write(page.encode())


def _render(comparison: Comparison) -> str:
    """Fill in the template."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files("keyhole.report").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(_content(comparison))


def _content(comparison: Comparison) -> dict[str, Any]:
    """Variables of the template."""
    data, trained = ReportData.of(comparison), page_text.trained(comparison)
    return {
        "plan": data.plan,
        "domain": data.domain,
        "channels": data.channels,
        "standardised": data.plan.origin.units_differ,
        "as_anomalies": data.as_anomalies,
        "follows_calendar": data.plan.scaling.climatology.needs_time,
        "climatology": data.plan.scaling.climatology.text,
        "result": page_text.result(data),
        "warning": data.plan.metadata.get("split", {}).get("warning"),
        "methods": page_text.methods(comparison),
        "choice": choice_text(comparison.chosen_by),
        "sites": page_text.sites(data),
        "intervals_in_words": page_text.intervals(data),
        "noise": page_text.noise(data),
        "metadata": page_text.metadata(data),
        "trained": trained.method if trained else None,
        "diamonds": any(differs(entry) for entry in comparison.entries),
        "pictures": _pictures(comparison, data),
    }


def _pictures(comparison: Comparison, data: ReportData) -> dict[str, _Picture]:
    """Figures of the page by name."""
    draw: dict[str, Callable[..., Figure]] = {
        "curve": partial(curve_figure, comparison),
        "sites": partial(sites_figure, data),
        "samples": partial(samples_figure, data),
        "errors": partial(error_figure, data),
    }
    if data.plan.predictor is not None:
        draw["target"] = partial(target_figure, data)
    if data.plan.k > 1 and data.plan.covariance is not None:
        draw["failures"] = partial(failures_figure, data)
    if data.plan.intervals is not None:
        draw |= {"coverage": partial(coverage_figure, data), "intervals": partial(interval_figure, data)}
    trained = page_text.trained(comparison)
    if trained is not None:
        draw["training"] = partial(training_figure, trained.plan)
    return {name: _Picture.of(one) for name, one in draw.items()}


def _uri(figure: Figure) -> str:
    """Encode a figure as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png(figure)).decode()
