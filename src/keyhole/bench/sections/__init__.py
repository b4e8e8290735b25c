"""Sections of the results page, each made from the lines of one benchmark."""

from __future__ import annotations

from keyhole.bench.sections.answers import answers
from keyhole.bench.sections.networks import networks
from keyhole.bench.sections.others import cgan, l1, steps, table2, weights
from keyhole.bench.sections.quality import ablation, by_time, quality, short_table
from keyhole.bench.sections.speed import speed
from keyhole.bench.sections.table1 import table1
from keyhole.bench.sections.tables import tables

__all__ = [
    "ablation",
    "answers",
    "by_time",
    "cgan",
    "l1",
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
