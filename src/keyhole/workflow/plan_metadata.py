"""What a plan records of how it came about: metadata and the training history."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.noise import ASSUMED_NOISE
from keyhole.data.preparation import PreparedSamples
from keyhole.data.samples import Samples
from keyhole.models.predictors import Predictor
from keyhole.models.reconstructors import Reconstructor
from keyhole.placement import Selection, Selector

__all__ = [
    "constraint_metadata",
    "noise_metadata",
    "run_metadata",
    "split_metadata",
    "stopped_metadata",
    "target_metadata",
    "training_history",
]


def run_metadata(
    selector: Selector, run: Run, *, method: str, fitted: Reconstructor, notes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metadata that do not depend on the data: method, settings, seed, versions, date."""
    import torch

    versions: dict[str, Any] = {name: version(name) for name in ("keyhole", "torch", "numpy")}
    return {
        "method": method,
        "settings": selector.settings(),
        "reconstructor": fitted.name,
        "seed": run.seed,
        "notes": dict(notes),
        "versions": versions | {"python": platform.python_version(), "threads": torch.get_num_threads()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def constraint_metadata(samples: Samples, sites: NDArray[np.int64]) -> dict[str, Any]:
    """Return the metadata of the constraints: their description, the number of existing sites, costs and groups."""
    constraints = samples.constraints
    if constraints is None:
        return {}
    n_existing = len(constraints.rules.existing)
    found: dict[str, Any] = {"asked": constraints.asked.described(), "existing": n_existing}
    if constraints.rules.costs is not None:
        cost = float(constraints.rules.costs[sites[n_existing:]].sum())
        found |= {"cost": cost, "cost_limit": constraints.rules.limit}
    if constraints.grouping is not None:
        found["groups"] = constraints.grouping.units[sites].tolist()
    return {"constraints": found}


def split_metadata(prepared: PreparedSamples) -> dict[str, int | str]:
    """Return the metadata of the split: sizes, kind, reason, warning, and the name of the samples' groups."""
    name = prepared.samples.groups_name
    return prepared.split.sizes() | ({"groups": name} if name else {})


def noise_metadata(prepared: PreparedSamples, selector: Selector, selection: Selection) -> dict[str, Any]:
    """Return the noise that the search assumed, as a share of the spread; nothing where it did not."""
    searched = selector.assumes_noise or "failures" in selection.notes
    assumed = searched and prepared.development.assumed_noise(selection.sites).any()
    return {"assumed_noise": ASSUMED_NOISE} if assumed else {}


def target_metadata(predictor: Predictor | None) -> dict[str, Any]:
    """Return the metadata of the target and its predictor."""
    if predictor is None:
        return {}
    kind = "class" if predictor.is_class else "number"
    return {"predictor": predictor.name, "target": {"name": predictor.target, "kind": kind}}


def stopped_metadata(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the step at which a callback ended the training of each stage; nothing where none did.

    Examples
    --------
    >>> stopped_metadata([{"stage": "refit", "step": 20.0, "stopped": 1.0}])
    {'stopped': {'refit': 20}}
    """
    found = {str(row["stage"]): int(row["step"]) for row in history if row.get("stopped")}
    return {"stopped": found} if found else {}


def training_history(selection: Selection, fitted: Reconstructor, predictor: Predictor | None) -> list[dict[str, Any]]:
    """Return the training history of all stages."""
    rows = {
        "select": selection.history,
        "refit": (*fitted.history, *fitted.tried),
        "predict": predictor.history if predictor else (),
    }
    return [{"stage": stage, **row} for stage, of_stage in rows.items() for row in of_stage]
