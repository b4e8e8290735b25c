"""Sweeps: many plans of one data set, by several workers at once, and which of them nothing beats."""

from __future__ import annotations

from keyhole.sweeps.fronts import Front, fronts
from keyhole.sweeps.study import StudyFile, read_study
from keyhole.sweeps.work import Trial, finished, work

__all__ = ["Front", "StudyFile", "Trial", "finished", "fronts", "read_study", "work"]
