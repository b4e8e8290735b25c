"""The report as one self-contained HTML page."""

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
from keyhole.report import facts
from keyhole.report.curves import curve_figure, differs, training_figure
from keyhole.report.figures import can_draw, error_figure, interval_figure, samples_figure, sites_figure
from keyhole.report.findings import ReportData
from keyhole.report.style import NARROW, WIDE, png
from keyhole.report.trust import coverage_figure, failures_figure
from keyhole.workflow.comparison import Comparison

__all__ = ["write_report"]

# Pixels of the page for one inch of a figure: text of 9.5 points is then as large as the page's own small text.
_PIXELS = 104


@dataclass(frozen=True)
class _Picture:
    """A figure for wide screens and one for narrow ones, as data URIs, and the wide one's size on the page."""

    wide: str
    narrow: str
    width: int
    height: int

    @classmethod
    def of(cls, draw: Callable[..., Figure]) -> _Picture:
        wide, narrow = draw(width=WIDE), draw(width=NARROW)
        width, height = (round(_PIXELS * float(inches)) for inches in wide.get_size_inches())
        return cls(_uri(wide), _uri(narrow), width, height)


def write_report(comparison: Comparison, path: str | Path) -> None:
    """Write one self-contained HTML page about the chosen plan of a comparison and the other methods.

    Figures are embedded and nothing is loaded from the network. An existing file is replaced only when the new one is
    complete.

    Parameters
    ----------
    comparison
        Result of `compare`; the page is about ``comparison.choice``.
    path
        HTML file to write.

    Raises
    ------
    StorageError
        The file cannot be written.

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
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files("keyhole.report").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(_content(comparison))


def _content(comparison: Comparison) -> dict[str, Any]:
    findings, trained = ReportData.of(comparison), facts.trained(comparison)
    return {
        "plan": findings.plan,
        "grid": findings.grid,
        "channels": findings.channels,
        "standardised": findings.plan.origin.units_differ,
        "as_anomalies": findings.as_anomalies,
        "cycle": findings.plan.scaling.cycle,
        "result": facts.result(findings),
        "methods": facts.methods(comparison),
        "sites": facts.sites(findings),
        "samples_in_words": facts.samples(findings),
        "errors_in_words": facts.spread_of_errors(findings),
        "intervals_in_words": facts.intervals(findings),
        "metadata": facts.metadata(findings),
        "trained": trained.method if trained else None,
        "diamonds": any(differs(entry) for entry in comparison.entries),
        "pictures": _pictures(comparison, findings),
    }


def _pictures(comparison: Comparison, findings: ReportData) -> dict[str, _Picture]:
    draw: dict[str, Callable[..., Figure]] = {"curve": partial(curve_figure, comparison)}
    if can_draw(findings.grid):
        draw |= {
            "sites": partial(sites_figure, findings),
            "samples": partial(samples_figure, findings),
            "errors": partial(error_figure, findings),
        }
    if findings.plan.k > 1 and findings.plan.covariance is not None:
        draw["failures"] = partial(failures_figure, findings)
    if findings.plan.intervals is not None:
        draw["coverage"] = partial(coverage_figure, findings)
        draw |= {"intervals": partial(interval_figure, findings)} if can_draw(findings.grid) else {}
    trained = facts.trained(comparison)
    if trained is not None:
        draw["training"] = partial(training_figure, trained.plan)
    return {name: _Picture.of(one) for name, one in draw.items()}


def _uri(figure: Figure) -> str:
    return "data:image/png;base64," + base64.b64encode(png(figure)).decode()
