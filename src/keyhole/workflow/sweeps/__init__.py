"""Sweeps: many plans of one data set, by several workers at once, and which of them nothing beats."""

from __future__ import annotations

from keyhole.workflow.sweeps.pareto import ParetoFront, fronts
from keyhole.workflow.sweeps.study import StudyFile, read_study
from keyhole.workflow.sweeps.worker import Trial, finished, work

__all__ = ["ParetoFront", "StudyFile", "Trial", "finished", "fronts", "read_study", "work"]
