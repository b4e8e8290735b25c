"""What a law gives when it is sampled: masks, and the probabilities that budgets hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Draw", "MaskSample", "share"]


@dataclass(frozen=True, eq=False)
class Draw:
    """Some draws of a law before they become masks; the fields are those of `MaskSample`.

    `opened` is left out where a site opens exactly when its logit is positive.
    """

    logits: Tensor
    open_probability: Tensor
    zero_temperature: Tensor
    opened: Tensor | None = None


@dataclass(frozen=True, eq=False)
class MaskSample:
    """Some masks of a law.

    Attributes
    ----------
    values
        `(draws, *grid)`: masks in [0, 1], zero outside the observable sites.
    logits
        `(draws, sites)`: the `u` of each draw before temperature, observable sites in C order.
    open_probability
        `(rows, sites)`: `P(S_i > 0)` at the law's temperature (`SimplexLogitNormal` defines it differently),
        differentiable. One row where it does not depend on the draw, else at most eight, from the same
        draw as the logits.
    zero_temperature
        `(rows, sites)`: `P(S_i = 1)` of the zero-temperature law, differentiable, same rows.
    opened
        `(draws, sites)`, bool: the sites that the zero-temperature mask of each draw opens.
    """

    values: Tensor
    logits: Tensor
    open_probability: Tensor
    zero_temperature: Tensor
    opened: Tensor

    @property
    def expected_l0(self) -> Tensor:
        """The paper's expected L0, `sum_i P(S_i > 0)`, at the law's temperature."""
        return self.open_probability.mean(0).sum()

    @property
    def soft_count(self) -> Tensor:
        """The count, `sum_i P(S_i = 1)` of the zero-temperature law, differentiable."""
        return self.zero_temperature.mean(0).sum()

    @property
    def sampled_count(self) -> Tensor:
        """The mean number of sites that these draws open at zero temperature; it has no gradient."""
        return self.opened.to(self.logits.dtype).sum(1).mean()


def share(masks: Tensor, batch: int) -> Tensor:
    """Give each of `batch` signals a mask; consecutive signals share one.

    Every mask serves `batch / draws` signals, rounded either way where that is not whole. With fewer
    signals than masks, some masks go unused.

    >>> share(torch.tensor([[0.0], [1.0]]), 5).flatten().tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0]
    """
    owner = torch.arange(batch, device=masks.device) * len(masks) // batch
    return masks.index_select(0, owner)
