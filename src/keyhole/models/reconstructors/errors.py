"""Unexplained variance of fitted reconstructors, sample by sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import Ratio
from keyhole.models.reconstructors.base import Reconstructor

__all__ = ["unexplained"]


def unexplained(fitted: Reconstructor, sites: NDArray[np.int64], samples: ScaledSamples) -> Ratio:
    """Return the unexplained variance of scaled fields, over all values that are not missing.

    Parameters
    ----------
    fitted
        A fitted reconstructor.
    sites
        The sites it was fitted to.
    samples
        Samples to reconstruct.

    Returns
    -------
    Ratio
        Squared errors over squared values, of each sample in order of time, or of each group of samples.
    """
    errors, squares = [], []
    for _, panel in samples.panels():
        truth = panel.known_targets
        reconstructed = fitted.reconstruct(panel.readings(sites), panel.covariates)
        errors.append(_sums_of_squares(truth - reconstructed))
        squares.append(_sums_of_squares(truth))
    order = samples.order_in_time()
    least = np.finfo(float).tiny  # so that the sum over samples is positive
    groups = None if samples.sample_groups is None else samples.sample_groups[order]
    return Ratio(np.concatenate(errors)[order], np.concatenate(squares)[order] + least).over(groups)


def _sums_of_squares(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sum of squares of each sample over values that are not missing."""
    return np.asarray(np.nansum(np.square(values, dtype=np.float64), axis=(1, 2)))
