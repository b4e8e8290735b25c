"""What is kept of a law to be drawn later."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from keyhole.laws import Law

__all__ = ["law_arrays"]

_DRAWS, _SHOWN = 512, 8
_MOST_SITES = 1024  # for a covariance that is kept whole


def law_arrays(law: Law) -> dict[str, NDArray[Any]]:
    """Give a few masks, the average of many, and the covariance of the logits where the law has one."""
    with torch.no_grad():
        masks = law.sample(_DRAWS, torch.Generator().manual_seed(0)).values
    arrays: dict[str, NDArray[Any]] = {
        "masks": masks[:_SHOWN].numpy().astype(np.float16),
        "average": masks.mean(0).numpy().astype(np.float32),
    }
    if law.correlated and law.sites <= _MOST_SITES:
        arrays["covariance"] = law.covariance().numpy()
    return arrays
