"""Arrays of a mask distribution that figures show."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from keyhole.data.sites import Sites
from keyhole.masks import MaskDistribution

__all__ = ["mask_arrays"]

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
