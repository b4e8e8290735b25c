"""Changes of a mask distribution other than by gradient: shifts of the logits, bounds on the marginals, warm start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from keyhole.core.errors import DataError, SettingsError
from keyhole.masks.normal import quantile
from keyhole.masks.sample import MaskSample
from keyhole.masks.valid_sites import ValidSites

__all__ = ["ShiftableLogits", "SiteIndices"]

SiteIndices = Sequence[int] | npt.NDArray[np.int64] | Tensor

_MIN_MOMENT_DRAWS = 8  # fewest draws from which the mean and standard deviation of logits are estimated
_MIN_WARM_START_MARGINAL = 1e-3  # lower bound after a warm start, so that every site keeps a gradient


class ShiftableLogits(ValidSites, ABC):
    """Base class of `MaskDistribution`: sites whose logits can be shifted, each by a constant of its own."""

    @torch.no_grad()
    def shift(self, delta: float) -> None:
        """Add a constant to the logits of all sites.

        Parameters
        ----------
        delta
            Positive opens more sites, negative fewer; the ranking of the logits of a draw is unchanged.
        """
        self._shift_logits(self._filled(delta))

    @torch.no_grad()
    def polarise(self, sample: MaskSample, min_marginal: float) -> None:
        """Remove interior modes where there is a closed form for it, and keep the marginals away from 0 and 1.

        A site whose marginal is nearly 0 or 1 has a vanishing gradient and no longer responds to a budget; its location
        is clipped so that the marginal lies in `[min_marginal, 1 - min_marginal]`.

        Parameters
        ----------
        sample
            Draws from which distributions without closed-form moments estimate the mean and standard deviation of
            each logit; with fewer than 8 draws these distributions are left unchanged.
        min_marginal
            Smallest marginal, between 0 and 0.5.
        """
        if len(sample.logits) >= _MIN_MOMENT_DRAWS:
            self._clip_marginals(sample.logits.mean(0), sample.logits.std(0).clamp_min(1e-6), min_marginal)

    def _clip_marginals(self, location: Tensor, spread: Tensor, min_marginal: float) -> None:
        """Clip locations so that normal logits with this spread have marginals within bounds."""
        bound = -float(quantile(torch.tensor(min_marginal, dtype=torch.float64))) * spread
        self._shift_logits(torch.minimum(torch.maximum(location, -bound), bound) - location)

    @torch.no_grad()
    def warm_start(self, selected: SiteIndices, *, selected_marginal: float = 0.8, count: float | None = None) -> None:
        """Initialise the marginals from sites selected by another method.

        The remaining count is spread evenly over the other sites, with marginals from 0.001 to `selected_marginal`.
        Only locations change; standard deviations and correlations stay.

        Parameters
        ----------
        selected
            Flat C-order grid indices of valid sites.
        selected_marginal
            Marginal of the selected sites, strictly between 0 and 1.
        count
            Sum of all marginals, as far as the bounds allow it; None takes the number of selected sites.

        Raises
        ------
        SettingsError
            `selected_marginal` is not strictly between 0 and 1.
        DataError
            A selected site is not valid.
        """
        if not 0 < selected_marginal < 1:
            raise SettingsError(f"selected_marginal must be strictly between 0 and 1, got {selected_marginal}")
        is_selected = self._is_selected(selected)
        n_selected = int(is_selected.sum())
        remaining = (n_selected if count is None else count) - selected_marginal * n_selected
        others = min(max(remaining / max(self.n_sites - n_selected, 1), _MIN_WARM_START_MARGINAL), selected_marginal)
        self._shift_logits(self._shift_to_marginals(self._filled(others).masked_fill(is_selected, selected_marginal)))

    def _is_selected(self, selected: SiteIndices) -> Tensor:
        """Mark the valid sites that are in `selected`, `(n_sites,)`."""
        wanted = torch.tensor(np.asarray(selected, dtype=np.int64), device=self.index.device)
        unknown = wanted[~torch.isin(wanted, self.index)]
        if len(unknown):
            raise DataError(
                f"warm start: site {int(unknown[0])} is not a valid site of the {tuple(self.event_shape)} grid"
            )
        return torch.isin(self.index, wanted)

    @abstractmethod
    def _shift_logits(self, delta: Tensor) -> None:
        """Add `delta`, `(n_sites,)`, to the logits, in place."""

    @abstractmethod
    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        """Return the `delta` for `_shift_logits` that gives these zero-temperature marginals."""
