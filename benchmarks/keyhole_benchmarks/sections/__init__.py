"""Sections of the results page, each made from the lines of one benchmark."""

from __future__ import annotations

from keyhole_benchmarks.sections.answers import answers
from keyhole_benchmarks.sections.examples import examples
from keyhole_benchmarks.sections.floor import floor
from keyhole_benchmarks.sections.gradients import gradients
from keyhole_benchmarks.sections.graphs import graphs
from keyhole_benchmarks.sections.learned import learned
from keyhole_benchmarks.sections.networks import networks
from keyhole_benchmarks.sections.others import cgan, l1, steps, table2, weights
from keyhole_benchmarks.sections.quality import ablation, by_time, quality, short_table
from keyhole_benchmarks.sections.speed import speed
from keyhole_benchmarks.sections.table1 import table1
from keyhole_benchmarks.sections.tables import tables

__all__ = [
    "ablation",
    "answers",
    "by_time",
    "cgan",
    "examples",
    "floor",
    "gradients",
    "graphs",
    "l1",
    "learned",
    "networks",
    "quality",
    "short_table",
    "speed",
    "steps",
    "table1",
    "table2",
    "tables",
    "weights",
]
