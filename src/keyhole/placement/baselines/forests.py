"""Forests of extremely random trees, for whichever kind of target there is."""

from __future__ import annotations

from typing import Any

from keyhole.data.samples import Samples
from keyhole.models.predictors import target_of

__all__ = ["forest_of"]


def forest_of(signals: Samples, trees: int, seed: int) -> Any:
    """Give a forest for the kind of target."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if target_of(signals).is_class else ExtraTreesRegressor
    return kind(trees, max_features="sqrt", min_samples_leaf=1, random_state=seed % 2**32)
