"""Base class of the mask distributions: stretch-and-clip, sampling and probabilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypedDict

import torch
from torch import Tensor, nn

from keyhole.core.errors import SettingsError
from keyhole.masks.log_probabilities import LogProbabilities
from keyhole.masks.sample import Draw, MaskSample
from keyhole.masks.updates import ShiftableLogits
from keyhole.masks.valid_sites import SitesLike

__all__ = [
    "REFERENCE_DRAWS",
    "CommonArguments",
    "MaskDistribution",
    "concentration_of",
    "reference_generator",
]

REFERENCE_DRAWS = 4096  # fixed draws for Monte Carlo estimates of quantities without a closed form
_CHUNK = 256  # reference draws in memory at once
_TIE_DRAWS = 256  # fixed draws for the mean logits that break ties between marginals
_ROWS = 8  # draws for an expected L0 that has no closed form


class CommonArguments(TypedDict, total=False):
    """Keyword arguments that every mask distribution passes on to `MaskDistribution`, where they are documented."""

    temperature: float | None
    gamma: float
    eta: float
    generator: torch.Generator | None


def concentration_of(marginals: Tensor, k: int) -> float:
    """Compute the share of the sum of marginals that is held by the k largest.

    Parameters
    ----------
    marginals
        Probabilities, any shape.
    k
        Number of sites, at most the number of marginals.

    Returns
    -------
    float
        Between `k / n_sites` (uniform) and 1 (all probability on k sites); 0 if all marginals are 0.

    Examples
    --------
    >>> concentration_of(torch.tensor([0.5, 0.25, 0.25]), 1)
    0.5
    """
    marginals = marginals.double().flatten()
    return float(marginals.topk(k).values.sum() / marginals.sum().clamp_min(1e-300))


def reference_generator() -> torch.Generator:
    """Return a generator with a fixed seed, for Monte Carlo estimates that depend on the parameters alone.

    Returns
    -------
    torch.Generator
        A new CPU generator, in the same state at every call.
    """
    return torch.Generator().manual_seed(20_211)


class MaskDistribution(LogProbabilities, ShiftableLogits, ABC):
    r"""Base class: a distribution of masks with learned parameters, sampled by reparameterisation.

    Each draw gives every valid site a logit `u`. The mask is its sigmoid at temperature `lam`, stretched to
    `[gamma, eta]` and clipped to `[0, 1]`:

    .. math:: S = \mathrm{clip}((\eta - \gamma)\,\mathrm{sigmoid}(u / \lambda) + \gamma,\ 0,\ 1)

    The clipping puts positive probability on both `S = 0` (where `u / lam <= lower_logit`) and `S = 1` (where
    `u / lam >= upper_logit`), while samples stay differentiable in the parameters. As `lam` goes to 0 the mask
    becomes `1[u > 0]`, the *zero-temperature mask*; the expected number of sites that it opens is the *count*.

    The face is that of `torch.distributions`, in a `torch.nn.Module` whose parameters are learned: `rsample`, `sample`,
    `event_shape`, `log_prob` and `entropy`. Properties (`marginals`, `probs_open`, `covariance`) describe the present
    distribution without gradient; what methods return is differentiable in the parameters, unless they say otherwise.

    A subclass implements `_draw`, `_marginals`, `_shift_logits`, `_shift_to_marginals` and `interior_modes`; where
    there are closed forms also `_probs_open`, `_open_probability`, `_covariance`, `_logit_density` and
    `logit_log_prob`. Once it is in `MASK_DISTRIBUTIONS`, the contract tests cover it.

    Parameters
    ----------
    sites
        Shape of the grid, such as `784` or `(28, 28)`, or a boolean array or tensor of that shape: the valid sites,
        which may be selected. The parameters are on the tensor's device.
    temperature
        `lam > 0`. None takes the class attribute `default_temperature`. It may be annealed by assigning the
        attribute `temperature`, and is part of `state_dict`.
    gamma, eta
        Ends of the stretch, `gamma < 0` and `eta > 1`; the defaults are those of [2]_.
    generator
        Source of the random initial parameters; its device is where they are drawn. None takes torch's global
        generator, here and in all methods.

    Attributes
    ----------
    name : str
        Name in `MASK_DISTRIBUTIONS`.
    correlated : bool
        Whether the sites of a draw depend on each other.
    event_shape : torch.Size
        Shape of one mask: that of the grid.
    index : Tensor
        Flat C-order grid indices of the valid sites, `(n_sites,)`.

    Raises
    ------
    DataError
        No site is valid.
    SettingsError
        The temperature or the stretch is out of range, or `sites` is neither a shape nor a boolean array.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    .. [2] C. Louizos, M. Welling and D. P. Kingma. Learning Sparse Neural Networks through L0 Regularization.
       ICLR 2018.
    """

    name: ClassVar[str]
    default_temperature: ClassVar[float] = 0.3

    def __init__(
        self,
        sites: SitesLike,
        *,
        temperature: float | None = None,
        gamma: float = -0.1,
        eta: float = 1.1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(sites)
        self.temperature = self.default_temperature if temperature is None else float(temperature)
        self.gamma, self.eta = gamma, eta
        if not (gamma < 0 and eta > 1):
            raise SettingsError(f"the stretch requires gamma < 0 and eta > 1, got {gamma} and {eta}")
        if not self.temperature > 0:
            raise SettingsError(f"temperature must be positive, got {temperature}")

    @property
    def lower_logit(self) -> float:
        """`L = log(-gamma / eta)`: the mask is 0 where `u / lam <= L`."""
        return math.log(-self.gamma / self.eta)

    @property
    def upper_logit(self) -> float:
        """`log((1 - gamma) / (eta - 1))`: the mask is 1 where `u / lam` is at least this."""
        return math.log((1 - self.gamma) / (self.eta - 1))

    # Samples.
    def rsample(self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Draw masks, differentiable in the parameters.

        Parameters
        ----------
        sample_shape
            Shape of the draws, `(n,)` for n masks.
        generator
            Source of the noise; None takes torch's global generator. The same state and parameters give the same masks.

        Returns
        -------
        Tensor
            `(*sample_shape, *event_shape)`, in [0, 1], zero at sites that are not valid.
        """
        shape = torch.Size(sample_shape)
        return self.draw(shape.numel(), generator).values.reshape(shape + self.event_shape)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Draw masks without gradient; with the same generator those of `rsample`.

        Parameters
        ----------
        sample_shape, generator
            As in `rsample`.

        Returns
        -------
        Tensor
            `(*sample_shape, *event_shape)`.
        """
        return self.rsample(sample_shape, generator)

    def draw(self, draws: int, generator: torch.Generator | None = None) -> MaskSample:
        """Draw masks with their logits and probabilities, which budgets need of one and the same draw.

        Parameters
        ----------
        draws
            Number of masks.
        generator
            As in `rsample`.

        Returns
        -------
        MaskSample
            Masks (those of `rsample((draws,))`), logits and probabilities, differentiable in the parameters.
        """
        draw = self._draw(draws, generator)
        y = torch.sigmoid(draw.logits / self.temperature)
        values = self.scatter(((self.eta - self.gamma) * y + self.gamma).clamp(0, 1))
        opened = draw.logits > 0 if draw.opened is None else draw.opened
        return MaskSample(values, draw.logits, draw.open_probability, draw.zero_temperature, opened)

    def forward(self, draws: int, generator: torch.Generator | None = None) -> MaskSample:
        """Call `draw`, so that the module can be wrapped (compiled, distributed).

        Parameters
        ----------
        draws, generator
            As in `draw`.

        Returns
        -------
        MaskSample
        """
        return self.draw(draws, generator)

    # Probabilities.
    @property
    def marginals(self) -> Tensor:
        """Zero-temperature marginals `P(S_i = 1)`, of the shape `event_shape`, zero at sites that are not valid.

        Without gradient, and deterministic: where there is no closed form, fixed draws are used.
        """
        with torch.no_grad():
            return self.scatter(self._marginals())

    @property
    def probs_open(self) -> Tensor:
        """Probabilities `P(S_i > 0)` at the temperature, of the shape `event_shape`, zero at sites that are not valid.

        Without gradient, and deterministic: where there is no closed form, fixed draws are used.
        """
        with torch.no_grad():
            return self.scatter(self._probs_open())

    def expected_l0(self, generator: torch.Generator | None = None) -> Tensor:
        """Compute the expected L0 norm `sum_i P(S_i > 0)` at the temperature, the penalty of the paper.

        Parameters
        ----------
        generator
            Source of the noise where there is no closed form (`HyperNetworkLogitNormal`, `SimplexLogitNormal`).

        Returns
        -------
        Tensor
            Scalar, between 0 and `n_sites`; the paper divides it by `n_sites` in the loss.
        """
        return self._open_probability(generator).mean(0).sum()

    def count(self) -> float:
        """Compute the expected number of sites that the zero-temperature mask opens.

        Returns
        -------
        float
            Sum of the marginals. Unlike the expected L0, it does not count sites that are only partly open at the
            current temperature.
        """
        return float(self.marginals.sum())

    def top(self, k: int) -> Tensor:
        """Select the k sites with the largest zero-temperature marginals `P(S_i = 1)`.

        Fast and deterministic, and sufficient once the distribution has concentrated on k sites. It ignores
        correlations: of two redundant sites with large marginals it takes both; `best_of` compares joint samples.

        Parameters
        ----------
        k
            Number of sites.

        Returns
        -------
        LongTensor
            `(k,)`, flat C-order grid indices, largest marginal first. Ties (often of 0 or 1) go by mean logit.

        Raises
        ------
        InfeasibleError
            k is less than 1 or more than the number of valid sites.
        """
        self.check_k(k)
        with torch.no_grad():
            logits = self._draw(_TIE_DRAWS, torch.Generator().manual_seed(0)).logits.double().sum(0)
            order = logits.argsort(descending=True, stable=True)
            marginals = self._marginals().double()[order]
        return self.index[order[marginals.argsort(descending=True, stable=True)[:k]]]

    def concentration(self, k: int) -> float:
        """Compute the share of the count that is held by the k sites with the largest marginals.

        Parameters
        ----------
        k
            Number of sites.

        Returns
        -------
        float
            1 when the distribution has converged to k sites; see `concentration_of`.
        """
        self.check_k(k)
        return concentration_of(self.marginals, k)

    @property
    def covariance(self) -> Tensor:
        """Covariance of the logits, `(n_sites, n_sites)`; `SettingsError` where sites are independent.

        Without gradient, and deterministic: where there is no closed form, fixed draws are used.
        """
        if not self.correlated:
            raise SettingsError(f"mask distribution {self.name!r} has independent sites and no covariance")
        with torch.no_grad():
            return self._covariance()

    @abstractmethod
    def interior_modes(self) -> Tensor:
        """Find the sites whose mask density has a mode strictly inside (0, 1).

        The mask of such a site is not nearly binary: a reconstructor can recover the site's value from a partly open
        mask, which defeats the budget. The paper lowers the temperature until there is none.

        Returns
        -------
        Tensor
            Bool, `(n_sites,)`.
        """

    def latent_weights(self) -> list[nn.Parameter]:
        """List the weights of a shared latent vector, for an optimiser group of their own.

        Many of these weights add up to the standard deviation of one site, so they may need a smaller learning rate.

        Returns
        -------
        list of Parameter
            Empty where there is no such latent.
        """
        return []

    # For subclasses.
    @abstractmethod
    def _draw(self, draws: int, generator: torch.Generator | None) -> Draw:
        """Draw logits, with the probabilities that belong to them."""

    @abstractmethod
    def _marginals(self) -> Tensor:
        """Return the zero-temperature marginals, `(n_sites,)`."""

    def _probs_open(self) -> Tensor:
        """Estimate `P(S > 0)`, `(n_sites,)`, from the reference draws."""
        generator, edge = reference_generator(), self._clip.lower
        parts = [self._draw(_CHUNK, generator).logits for _ in range(REFERENCE_DRAWS // _CHUNK)]
        return torch.stack([(u > edge).to(u.dtype).mean(0) for u in parts]).mean(0)

    def _open_probability(self, generator: torch.Generator | None) -> Tensor:
        """Return `MaskSample.open_probability` of a few draws, `(rows, n_sites)`."""
        return self._draw(_ROWS, generator).open_probability

    def _covariance(self) -> Tensor:
        """Estimate the covariance of the logits from the reference draws."""
        logits = self._draw(REFERENCE_DRAWS, reference_generator()).logits
        return torch.cov(logits.T).reshape(self.n_sites, self.n_sites)

    def extra_repr(self) -> str:
        """Return the sites and the temperature, for `repr`.

        Returns
        -------
        str
        """
        return f"{tuple(self.event_shape)}, n_sites={self.n_sites}, temperature={self.temperature:.3g}"

    def get_extra_state(self) -> Tensor:
        """Return the temperature for `state_dict`, in double precision.

        Returns
        -------
        Tensor
            Scalar.
        """
        return torch.tensor(self.temperature, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the temperature from a `state_dict`.

        Parameters
        ----------
        state
            What `get_extra_state` returned.
        """
        self.temperature = float(state)
