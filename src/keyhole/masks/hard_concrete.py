"""The hard concrete distribution: stretched and clipped binary concrete (SCT in the paper)."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from keyhole.masks.base import CommonArguments, MaskDistribution
from keyhole.masks.density import LogisticLogits
from keyhole.masks.modes import concrete_modes
from keyhole.masks.sample import Draw, MaskSample
from keyhole.masks.valid_sites import SitesLike

__all__ = ["HardConcrete"]


class HardConcrete(MaskDistribution):
    r"""Hard concrete distribution: independent sites with logistic logits.

    .. math::
        u = \log\alpha + \log v - \log(1 - v), \quad v \sim U(0, 1), \qquad
        P(S_i > 0) = \mathrm{sigmoid}(\log\alpha_i - \lambda \log(-\gamma / \eta)), \qquad
        P(S_i = 1) \to \mathrm{sigmoid}(\log\alpha_i) \text{ as } \lambda \to 0

    The standard choice for L0 regularisation, with one parameter per site. The logit-normal distributions have a free
    standard deviation as well, and can be correlated. `log_alpha` is initialised to 0: at temperature 2/3 and the
    default stretch `P(S = 0) = P(S = 1) = 0.168`.

    Parameters
    ----------
    sites, temperature, gamma, eta, generator
        As in `MaskDistribution`; the default temperature is 2/3.

    References
    ----------
    .. [1] C. Louizos, M. Welling and D. P. Kingma. Learning Sparse Neural Networks through L0 Regularization. ICLR
    2018.
    .. [2] C. J. Maddison, A. Mnih and Y. W. Teh. The Concrete Distribution. ICLR 2017.

    Examples
    --------
    >>> distribution = HardConcrete(5, generator=torch.Generator().manual_seed(0))
    >>> distribution.count(), round(distribution.temperature, 3)
    (2.5, 0.667)
    """

    name: ClassVar[str] = "sct"
    correlated: ClassVar[bool] = False
    default_temperature: ClassVar[float] = 2 / 3

    def __init__(self, sites: SitesLike, **common: Unpack[CommonArguments]) -> None:
        super().__init__(sites, **common)
        self.log_alpha = nn.Parameter(self._filled(0.0))

    def _draw(self, draws: int, generator: torch.Generator | None) -> Draw:
        v = self._uniform(draws, self.n_sites, generator=generator)
        noise = torch.logit(v.clamp_min(torch.finfo(v.dtype).eps / 4))
        return Draw(self.log_alpha + noise, self._open_probability(generator), self._marginals()[None])

    def _marginals(self) -> Tensor:
        return torch.sigmoid(self.log_alpha)

    def _probs_open(self) -> Tensor:
        return torch.sigmoid(self.log_alpha - self.temperature * self.lower_logit)

    def _open_probability(self, generator: torch.Generator | None) -> Tensor:
        return self._probs_open()[None]

    def _logit_density(self) -> LogisticLogits:
        return LogisticLogits(self.log_alpha)

    def _shift_logits(self, delta: Tensor) -> None:
        self.log_alpha.add_(delta)

    @torch.no_grad()
    def polarise(self, sample: MaskSample, min_marginal: float) -> None:
        """Clip the marginals; up to temperature 1 there are no interior modes to remove.

        Parameters
        ----------
        sample, min_marginal
            As in `MaskDistribution.polarise`; the sample is not used.
        """
        bound = math.log((1 - min_marginal) / min_marginal)
        self.log_alpha.clamp_(-bound, bound)

    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        return torch.logit(marginals) - self.log_alpha

    @torch.no_grad()
    def interior_modes(self) -> Tensor:
        """Find sites with an interior mode, exactly; there is none up to temperature 1. See `concrete_modes`.

        Returns
        -------
        Tensor
            Bool, `(n_sites,)`.
        """
        return concrete_modes(self.log_alpha, self.temperature, self.lower_logit, self.upper_logit)
