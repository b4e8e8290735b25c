"""Arrays of a selection and its mask distribution that figures show."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from keyhole.data.sites import Sites
from keyhole.masks import MaskDistribution
from keyhole.placement import Selection
from keyhole_benchmarks.data import Data

__all__ = ["mask_arrays", "selection_arrays"]

_DRAWS, _SHOWN = 512, 8
_MOST_SITES = 1024  # for a covariance that is kept whole


def mask_arrays(distribution: MaskDistribution, domain: Sites) -> dict[str, NDArray[Any]]:
    """Return a few masks, the mean of many, and the covariance of the logits where the distribution has one.

    Parameters
    ----------
    distribution
        A mask distribution over the sites.
    domain
        The sites; masks are returned in the shape of the data.

    Returns
    -------
    dict
        Arrays ``masks``, ``average`` and, for small correlated distributions, ``covariance``.
    """
    masks = distribution.sample((_DRAWS,), torch.Generator().manual_seed(0))
    arrays: dict[str, NDArray[Any]] = {
        "masks": domain.to_grid(masks[:_SHOWN].numpy().astype(np.float16), fill=0),
        "average": domain.to_grid(masks.mean(0).numpy().astype(np.float32), fill=0),
    }
    if distribution.correlated and distribution.n_sites <= _MOST_SITES:
        arrays["covariance"] = distribution.covariance.numpy()
    return arrays


def selection_arrays(data: Data, selection: Selection) -> dict[str, NDArray[Any]]:
    """Return some test samples, their reconstructions, the sites, and what `mask_arrays` gives.

    Parameters
    ----------
    data
        The data set.
    selection
        A selection from its plain samples.

    Returns
    -------
    dict
        Arrays ``truth`` and ``sites``, and the others where the selection has a network or a mask distribution.
    """
    some, domain = data.test(data.plain).take(np.arange(_SHOWN)), data.domain
    arrays: dict[str, NDArray[Any]] = {"truth": domain.to_grid(some.values), "sites": domain.index[selection.sites]}
    if selection.reconstruct is not None:
        arrays["reconstructed"] = domain.to_grid(selection.reconstruct(some))
    if selection.distribution is not None:
        arrays |= mask_arrays(selection.distribution, domain)
    return arrays
