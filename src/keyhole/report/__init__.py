"""The report: sites, errors, prediction intervals and provenance, as figures, tables and one HTML page.

Loads matplotlib, so nothing else imports it before it is needed.
"""

from __future__ import annotations

from keyhole.report.curves import comparison_figure, curve_figure, training_figure
from keyhole.report.error_by_k import Line, error_by_k_figure
from keyhole.report.figures import error_figure, samples_figure, sites_figure
from keyhole.report.page import write_report
from keyhole.report.report_data import ReportData
from keyhole.report.style import NARROW, WIDE, save_figure
from keyhole.report.target import target_figure

__all__ = [
    "NARROW",
    "WIDE",
    "Line",
    "ReportData",
    "comparison_figure",
    "curve_figure",
    "error_by_k_figure",
    "error_figure",
    "samples_figure",
    "save_figure",
    "sites_figure",
    "target_figure",
    "training_figure",
    "write_report",
]
