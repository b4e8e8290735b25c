"""The shift of all logits by which the zero-temperature count of a mask distribution is kept near k."""

from __future__ import annotations

from torch import Tensor

from keyhole.core.processes import Processes
from keyhole.masks.base import MaskDistribution
from keyhole.masks.sample import MaskSample

__all__ = ["recentre", "threshold_after"]


def recentre(distribution: MaskDistribution, sample: MaskSample, k: int, share: float, several: Processes) -> None:
    """Shift the logits by a share of the way to where k of them per draw, on average, are positive.

    The draws are those of all processes; of each process's logits only the largest, which may be among the largest of
    all, are communicated.
    """
    total = k * len(sample.logits) * several.count
    own = _descending(sample.logits.flatten(), total + 1)
    ordered = own if several.count == 1 else _descending(several.gather(own), total + 1)
    ordered = ordered.reshape(1, -1)
    distribution.shift(-share * float(threshold_after(ordered, total, distribution.temperature)))


def _descending(values: Tensor, most: int) -> Tensor:
    """Return the largest values, at most so many, in descending order."""
    return values.topk(min(most, len(values))).values


def threshold_after(ordered: Tensor, position: int, temperature: float) -> Tensor:
    """Return `(rows, 1)`: the midpoint between the first `position` descending values and the next one."""
    last = ordered[:, position - 1 : position]
    following = ordered[:, position : position + 1] if position < ordered.shape[1] else last - 2 * temperature
    return (last + following) / 2
