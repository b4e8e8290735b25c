"""Components by subspace iteration, against the same by an eigenvalue decomposition and by one pass more."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.models.subspace import leading_subspace


def falling(power: float, n: int = 1200, m: int = 3000) -> np.ndarray:
    """Samples whose variances along random directions fall with a power of their number."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(size, n)))[0] for size in (n, m))
    return (100 * left * np.arange(1, n + 1) ** (-power / 2)) @ right.T


def left_over(samples: np.ndarray, basis: np.ndarray) -> float:
    return float(1 - np.square(samples @ basis).sum() / np.square(samples).sum())


@pytest.mark.parametrize("power", [1, 2])
def test_two_products_leave_no_more_than_the_best_directions_after_three(power):
    scaled = kh.read(falling(power).astype(np.float32)).as_scaled()
    values = scaled.targets.reshape(1200, -1).astype(np.float64)
    mean = values.mean(axis=0)
    centred, rng = values - mean, np.random.default_rng(1)
    variances, basis = leading_subspace(scaled, mean.astype(np.float32), 200)
    np.testing.assert_allclose(basis.T @ basis, np.eye(200), atol=1e-5)
    np.testing.assert_allclose(variances[:50], np.linalg.svd(centred)[1][:50] ** 2 / 1200, rtol=0.02)

    other = np.linalg.qr(np.concatenate([centred[::7].T, rng.normal(size=(3000, 220 - len(centred[::7])))], axis=1))[0]
    for _ in range(2):
        other = np.linalg.qr(centred.T @ (centred @ other))[0]
    best = np.linalg.svd(centred @ other, full_matrices=False)[2][:200]  # the best directions within the third basis
    assert left_over(centred, basis) < 1.001 * left_over(centred, other @ best.T)
