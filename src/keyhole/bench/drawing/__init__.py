"""Figures of the benchmarks: those of the paper, and Table 1 as a chart, drawn from what was kept."""

from __future__ import annotations

from keyhole.bench.drawing.charts import table1_chart
from keyhole.bench.drawing.densities import LogitNormal, densities
from keyhole.bench.drawing.gallery import PRIVATE, draw_all, draw_chart, draw_features
from keyhole.bench.drawing.kept import Kept, kept, latest
from keyhole.bench.drawing.laws import averages, covariance
from keyhole.bench.drawing.samples import gan_against_squared, samples

__all__ = [
    "PRIVATE",
    "Kept",
    "LogitNormal",
    "averages",
    "covariance",
    "densities",
    "draw_all",
    "draw_chart",
    "draw_features",
    "gan_against_squared",
    "kept",
    "latest",
    "samples",
    "table1_chart",
]
