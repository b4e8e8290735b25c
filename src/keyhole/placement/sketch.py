"""A few samples that stand for many: their covariance is that of the leading components of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import principal_components

__all__ = ["sketch"]


def sketch(samples: ScaledSamples, most: int) -> ScaledSamples:
    r"""Return a few samples in memory with the covariance that the leading components of all samples have.

    They are :math:`\sqrt{n} W \operatorname{diag}(\lambda)^{1/2} V^T` with :math:`n - 1` components and orthonormal
    columns :math:`W` that sum to zero. The variance that the components leave, which is taken as uncorrelated, is added
    to the noise of the sensors.

    Parameters
    ----------
    samples
        Scaled samples.
    most
        Number of components.

    Returns
    -------
    ScaledSamples
        Without missing values and covariates.

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]
    >>> few = sketch(kh.read(values).as_scaled(), 4)
    >>> few.shape, np.allclose(few.targets[:, 0].var(axis=0), values.var(axis=0), rtol=1e-4)
    ((5, 1, 4), True)
    """
    components = principal_components(samples, most)
    n = len(components.variances) + 1
    weights = (np.sqrt(n) * _balanced(n) * np.sqrt(components.variances)).astype(np.float32)
    targets = np.einsum("nr,cmr->ncm", weights, components.basis.astype(np.float32), optimize=True)
    kept = np.einsum("cmr,cmr,r->cm", components.basis, components.basis, components.variances)
    unresolved = np.maximum(samples.target_variance() - kept, 0)
    root = np.ones(len(samples.sites)) if samples.root is None else samples.root
    noise = np.hypot(np.sqrt(unresolved) / root, samples.assumed_noise(np.arange(len(samples.sites))))
    if samples.noise is not None:
        noise = np.hypot(noise, samples.noise)
    few = replace(
        samples, data=targets, time=None, target=None, covariates=None, sample_groups=None, rows=None, offset=None,
        missing=None, imputer=None, site_variance=None, noise=noise,
    )  # fmt: skip
    return few.with_targets(targets)


def _balanced(n: int) -> NDArray[np.float64]:
    """``(n, n - 1)`` with orthonormal columns that sum to zero (Helmert's)."""
    rows = np.tril(np.ones((n - 1, n - 1)))
    lengths = np.arange(1, n)
    matrix = np.concatenate([rows, np.zeros((n - 1, 1))], axis=1)
    matrix[np.arange(n - 1), lengths] = -lengths
    return np.asarray((matrix / np.sqrt(lengths * (lengths + 1))[:, np.newaxis]).T)
