"""Linear reconstruction from scaled readings to the user's units as one matrix: what a product is quick at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.data.grid import Grid
from keyhole.data.scaler import Scaler
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["affine"]


def affine(linear: LinearReconstructor, scaling: Scaler, grid: Grid) -> NDArray[np.floating[Any]]:
    """Give the matrix ``(features + phases, channels * grid)`` that makes whole signals of features.

    With `x = (offset + f B) * scale / root + baseline` and a one in the column of the sample's phase behind the
    features, the rows are `B * scale / root`, and `offset * scale / root + baseline` for each phase; NaN outside in the
    latter, so that a product puts it where it belongs.
    """
    channels, kind = len(scaling.scale), scaling.baseline.dtype
    unit = np.repeat(scaling.scale[:, np.newaxis], len(grid.cells), axis=1)
    if scaling.root is not None:
        unit = unit / scaling.root.ravel()[grid.cells]
    inside = np.tile(grid.inside.ravel(), channels)
    features, phases = len(linear.weights), len(scaling.baseline)
    whole = np.zeros((features + phases, channels * grid.size), kind)
    whole[:features, inside] = linear.weights * unit.ravel()
    whole[features:] = np.where(inside, scaling.baseline.reshape(phases, -1), np.nan)
    whole[features:, inside] += (linear.offset * unit.ravel()).astype(kind)
    return whole
