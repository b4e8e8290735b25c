"""Log probabilities and entropy of masks, with atoms at 0 and 1, and the log density of logits."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from torch import Tensor

from keyhole.masks.density import ClippedSigmoid, LogitDensity
from keyhole.masks.valid_sites import ValidSites

__all__ = ["LogProbabilities"]


class LogProbabilities(ValidSites, ABC):
    """Base class of `MaskDistribution`: log probabilities, where the logit of a site has a density in closed form."""

    correlated: ClassVar[bool]
    temperature: float
    gamma: float
    eta: float

    def marginal_log_prob(self, mask: Tensor) -> Tensor:
        """Compute the log probability of the mask of each site by itself.

        The distribution of `S_i` has atoms at 0 and at 1 and a density between them: the result is a log probability at
        0 and 1 and a log density elsewhere, so that its exponential integrates to 1 with respect to Lebesgue measure on
        (0, 1) plus the two point masses.

        Parameters
        ----------
        mask
            `(*sample_shape, *event_shape)`.

        Returns
        -------
        Tensor
            Same shape; minus infinity where the mask is impossible, and 0 at sites that are not valid, whose mask is 0.

        Raises
        ------
        NotImplementedError
            The logits of one site have no density in closed form.
        """
        result = self.scatter(self._clip.log_prob(self._required_density(), self.pack(mask)))
        return result.masked_fill(mask != self.scatter(self.pack(mask)), -torch.inf)

    def log_prob(self, mask: Tensor) -> Tensor:
        """Compute the log probability of masks, where sites are independent: the sum of `marginal_log_prob`.

        Parameters
        ----------
        mask
            `(*sample_shape, *event_shape)`.

        Returns
        -------
        Tensor
            `sample_shape`.

        Raises
        ------
        NotImplementedError
            Sites are correlated.
        """
        self._require_independent("log_prob", "masks have no joint density in closed form; see marginal_log_prob")
        of_sites = self.marginal_log_prob(mask)
        return of_sites.flatten(of_sites.dim() - len(self.event_shape)).sum(-1)

    def entropy(self) -> Tensor:
        """Compute the entropy `-E log_prob(S)` at the temperature, where sites are independent, by quadrature.

        It has a differential part, since masks are partly continuous, so that it may be negative; the entropy of the
        zero-temperature masks is that of `torch.distributions.Bernoulli(masks.marginals)`, summed.

        Returns
        -------
        Tensor
            Scalar, in nats.

        Raises
        ------
        NotImplementedError
            Sites are correlated.
        """
        self._require_independent("entropy", "masks have no entropy in closed form")
        return self._clip.entropy(self._required_density()).sum()

    def logit_log_prob(self, logits: Tensor) -> Tensor:
        """Compute the log density of the logits of all sites, which the score-function estimator `Reinforce` needs.

        Parameters
        ----------
        logits
            `(draws, n_sites)`, as in `MaskSample.logits`.

        Returns
        -------
        Tensor
            `(draws,)`.

        Raises
        ------
        NotImplementedError
            The logits have no density, or none in closed form.
        """
        self._require_independent("logit_log_prob", "logits have no joint density in closed form")
        return self._required_density().log_density(logits).sum(-1)

    def _require_independent(self, method: str, consequence: str) -> None:
        if self.correlated:
            raise NotImplementedError(
                f"{method}: the sites of {type(self).__name__} are correlated, so that {consequence}"
            )

    def _required_density(self) -> LogitDensity:
        density = self._logit_density()
        if density is None:
            raise NotImplementedError(f"the logits of {type(self).__name__} have no density in closed form")
        return density

    @property
    def _clip(self) -> ClippedSigmoid:
        return ClippedSigmoid(self.temperature, self.gamma, self.eta)

    def _logit_density(self) -> LogitDensity | None:
        """Return the distribution of each site's logit, or None where it has no closed form."""
        return None
