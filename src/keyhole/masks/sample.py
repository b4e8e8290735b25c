"""Samples of a mask distribution: masks, logits, and the probabilities that budgets are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Draw", "MaskSample", "share"]


@dataclass(frozen=True, eq=False)
class Draw:
    """Draws of logits, before temperature and stretch; what a subclass of `MaskDistribution` returns from `_draw`.

    Attributes
    ----------
    logits, open_probability, zero_temperature
        As in `MaskSample`.
    opened
        As in `MaskSample`; None where a site is open exactly when its logit is positive.
    """

    logits: Tensor
    open_probability: Tensor
    zero_temperature: Tensor
    opened: Tensor | None = None


@dataclass(frozen=True, eq=False)
class MaskSample:
    """Masks drawn from a mask distribution, and their probabilities.

    Attributes
    ----------
    values
        `(draws, *event_shape)`: masks in [0, 1], zero outside the valid sites.
    logits
        `(draws, n_sites)`: the `u` of each draw before temperature, valid sites in C order.
    open_probability
        `(rows, n_sites)`: `P(S_i > 0)` at the current temperature (`SimplexLogitNormal` defines it differently),
        differentiable. One row where it does not depend on the draw, otherwise at most eight, from the same draws as
        the logits.
    zero_temperature
        `(rows, n_sites)`: `P(S_i = 1)` at zero temperature, differentiable, same rows.
    opened
        `(draws, n_sites)`, bool: the sites that are open in the zero-temperature mask of each draw.
    """

    values: Tensor
    logits: Tensor
    open_probability: Tensor
    zero_temperature: Tensor
    opened: Tensor

    @property
    def expected_l0(self) -> Tensor:
        """Expected L0 norm `sum_i P(S_i > 0)` at the current temperature: a differentiable scalar."""
        return self.open_probability.mean(0).sum()

    @property
    def soft_count(self) -> Tensor:
        """Expected number of open sites at zero temperature, `sum_i P(S_i = 1)`: a differentiable scalar."""
        return self.zero_temperature.mean(0).sum()

    @property
    def sampled_count(self) -> Tensor:
        """Mean number of open sites of these draws at zero temperature: a scalar without gradient."""
        return self.opened.to(self.logits.dtype).sum(1).mean()


def share(masks: Tensor, batch: int) -> Tensor:
    """Assign the masks of several draws to the samples of a batch; consecutive samples share a mask.

    Parameters
    ----------
    masks
        `(draws, ...)`.
    batch
        Number of samples.

    Returns
    -------
    Tensor
        `(batch, ...)`. Each mask is used by `batch / draws` samples, rounded down or up; with fewer samples than masks,
        some masks are unused.

    Examples
    --------
    >>> share(torch.tensor([[0.0], [1.0]]), 5).flatten().tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0]
    """
    draw_of_sample = torch.arange(batch, device=masks.device) * len(masks) // batch
    return masks.index_select(0, draw_of_sample)
