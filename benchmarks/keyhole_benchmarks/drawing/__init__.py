"""Figures of the benchmarks: those of the paper, and Table 1 as a chart, drawn from records and arrays."""

from __future__ import annotations

from keyhole_benchmarks.drawing.charts import table1_chart
from keyhole_benchmarks.drawing.densities import LogitNormal, densities
from keyhole_benchmarks.drawing.distributions import averages, covariance
from keyhole_benchmarks.drawing.gallery import PRIVATE, draw_all, draw_chart, draw_features
from keyhole_benchmarks.drawing.samples import gan_against_squared, samples
from keyhole_benchmarks.drawing.stored_cases import StoredCase, latest, stored_cases

__all__ = [
    "PRIVATE",
    "LogitNormal",
    "StoredCase",
    "averages",
    "covariance",
    "densities",
    "draw_all",
    "draw_chart",
    "draw_features",
    "gan_against_squared",
    "latest",
    "samples",
    "stored_cases",
    "table1_chart",
]
