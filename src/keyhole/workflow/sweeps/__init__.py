"""Hyperparameter sweeps: many trials on one data set by parallel workers, and their Pareto fronts."""

from __future__ import annotations

from keyhole.workflow.sweeps.pareto import ParetoFront, fronts
from keyhole.workflow.sweeps.study import StudyFile, read_study
from keyhole.workflow.sweeps.trials import Trial
from keyhole.workflow.sweeps.worker import finished, work

__all__ = ["ParetoFront", "StudyFile", "Trial", "finished", "fronts", "read_study", "work"]
