"""Base class of the mask distributions: sites, stretch-and-clip, sampling, marginals and warm start."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from keyhole.core.errors import DataError, InfeasibleError, SettingsError
from keyhole.masks.normal import quantile
from keyhole.masks.sample import Draw, MaskSample, share

__all__ = [
    "REFERENCE_DRAWS",
    "CommonArguments",
    "Draw",
    "MaskDistribution",
    "MaskSample",
    "SiteIndices",
    "concentration_of",
    "reference_generator",
    "share",
]

SiteIndices = Sequence[int] | npt.NDArray[np.int64] | Tensor

REFERENCE_DRAWS = 4096  # fixed draws for Monte Carlo estimates of quantities without a closed form
_MIN_MOMENT_DRAWS = 8  # fewest draws from which the mean and standard deviation of logits are estimated
_MIN_WARM_START_MARGINAL = 1e-3  # lower bound after a warm start, so that every site keeps a gradient


class CommonArguments(TypedDict, total=False):
    """Keyword arguments that every mask distribution passes on to `MaskDistribution`, where they are documented."""

    temperature: float | None
    gamma: float
    eta: float


def concentration_of(marginals: Tensor, k: int) -> float:
    """Compute the share of the sum of marginals that is held by the k largest.

    Parameters
    ----------
    marginals
        Probabilities, `(sites,)`.
    k
        Number of sites, at most `len(marginals)`.

    Returns
    -------
    float
        Between `k / sites` (uniform) and 1 (all probability on k sites); 0 if all marginals are 0.

    Examples
    --------
    >>> concentration_of(torch.tensor([0.5, 0.25, 0.25]), 1)
    0.5
    """
    marginals = marginals.double()
    return float(marginals.topk(k).values.sum() / marginals.sum().clamp_min(1e-300))


def reference_generator() -> torch.Generator:
    """Return a generator with a fixed seed, for Monte Carlo estimates that depend on the parameters alone.

    Returns
    -------
    torch.Generator
        A new CPU generator, in the same state at every call.
    """
    return torch.Generator().manual_seed(20_211)


class MaskDistribution(nn.Module, ABC):
    r"""Base class: a distribution of masks with learned parameters, sampled by reparameterisation.

    Each draw gives every observable site a logit `u`. The mask is its sigmoid at temperature `lam`, stretched to
    `[gamma, eta]` and clipped to `[0, 1]`:

    .. math:: S = \mathrm{clip}((\eta - \gamma)\,\mathrm{sigmoid}(u / \lambda) + \gamma,\ 0,\ 1)

    The clipping puts positive probability on both `S = 0` (where `u / lam <= lower_logit`) and `S = 1` (where
    `u / lam >= upper_logit`), while samples stay differentiable in the parameters. As `lam` goes to 0 the mask
    becomes `1[u > 0]`, the *zero-temperature mask*; the expected number of sites that it opens is the *count*.

    A subclass implements `_draw`, `_marginals`, `_shift_logits`, `_shift_to_marginals` and `interior_modes`, and
    `_covariance` where it has a closed form. Once it is in `MASK_DISTRIBUTIONS`, the contract tests cover it.

    Parameters
    ----------
    observable
        Boolean tensor of the grid's shape: the sites that may be selected.
    temperature
        `lam > 0`. None takes the class attribute `default_temperature`. It may be annealed by assigning the
        attribute `temperature`, and is part of `state_dict`.
    gamma, eta
        Ends of the stretch, `gamma < 0` and `eta > 1`; the defaults are those of [2]_.
    generator
        Source of the random initial parameters; its device is where they are drawn.

    Attributes
    ----------
    name : str
        Name in `MASK_DISTRIBUTIONS`.
    correlated : bool
        Whether the sites of a draw depend on each other.
    index : Tensor
        Flat C-order grid indices of the observable sites, `(sites,)`.

    Raises
    ------
    DataError
        No site is observable.
    SettingsError
        The temperature or the stretch is out of range.

    References
    ----------
    .. [1] J. Donà and P. Gallinari. Differentiable Feature Selection, a Reparameterization Approach. ECML PKDD 2021.
    .. [2] C. Louizos, M. Welling and D. P. Kingma. Learning Sparse Neural Networks through L0 Regularization.
       ICLR 2018.
    """

    name: ClassVar[str]
    correlated: ClassVar[bool]
    default_temperature: ClassVar[float] = 0.3
    index: Tensor

    def __init__(
        self,
        observable: Tensor,
        *,
        temperature: float | None = None,
        gamma: float = -0.1,
        eta: float = 1.1,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.grid = tuple(observable.shape)
        self.temperature = self.default_temperature if temperature is None else float(temperature)
        self.gamma, self.eta = gamma, eta
        self.register_buffer("index", observable.flatten().nonzero().squeeze(1))
        self._check()

    def _check(self) -> None:
        """Raise if there are no sites, or the stretch or the temperature is out of range."""
        if not self.sites:
            raise DataError(f"observable: no site of the {self.grid} grid is observable; at least one is required")
        if not (self.gamma < 0 and self.eta > 1):
            raise SettingsError(f"the stretch requires gamma < 0 and eta > 1, got {self.gamma} and {self.eta}")
        if not self.temperature > 0:
            raise SettingsError(f"temperature must be positive, got {self.temperature}")

    # Sites.
    @property
    def sites(self) -> int:
        """Number of observable sites."""
        return len(self.index)

    def pack(self, values: Tensor) -> Tensor:
        """Gather the observable sites of values on the grid.

        Parameters
        ----------
        values
            `(..., *grid)`.

        Returns
        -------
        Tensor
            `(..., sites)`, in C order.
        """
        return values.flatten(values.dim() - len(self.grid)).index_select(-1, self.index)

    def scatter(self, packed: Tensor) -> Tensor:
        """Put values of the observable sites on the grid; the inverse of `pack`.

        Parameters
        ----------
        packed
            `(..., sites)`, in C order.

        Returns
        -------
        Tensor
            `(..., *grid)`, zero at sites that are not observable.
        """
        batch_shape = packed.shape[:-1]
        if self.sites == math.prod(self.grid):
            return packed.reshape(*batch_shape, *self.grid)
        flat = packed.new_zeros(*batch_shape, math.prod(self.grid))
        return flat.index_copy(-1, self.index, packed).reshape(*batch_shape, *self.grid)

    def check_k(self, k: int) -> None:
        """Check that k sites can be selected.

        Parameters
        ----------
        k
            Number of sites.

        Raises
        ------
        InfeasibleError
            k is less than 1 or more than the number of observable sites.
        """
        if not 1 <= k <= self.sites:
            raise InfeasibleError(f"k must be from 1 to {self.sites}, the number of observable sites; got {k}")

    # Masks.
    @property
    def lower_logit(self) -> float:
        """`L = log(-gamma / eta)`: the mask is 0 where `u / lam <= L`."""
        return math.log(-self.gamma / self.eta)

    @property
    def upper_logit(self) -> float:
        """`log((1 - gamma) / (eta - 1))`: the mask is 1 where `u / lam` is at least this."""
        return math.log((1 - self.gamma) / (self.eta - 1))

    def stretch(self, y: Tensor) -> Tensor:
        """Stretch values from `[0, 1]` to `[gamma, eta]` and clip them to `[0, 1]`.

        Parameters
        ----------
        y
            Relaxed masks in `[0, 1]`, any shape.

        Returns
        -------
        Tensor
            Same shape; the gradient is zero where it was clipped.
        """
        return ((self.eta - self.gamma) * y + self.gamma).clamp(0, 1)

    def sample(self, draws: int, generator: torch.Generator) -> MaskSample:
        """Draw masks, differentiable in the parameters.

        Parameters
        ----------
        draws
            Number of masks.
        generator
            Source of the noise. The same state and parameters give the same masks.

        Returns
        -------
        MaskSample
            Masks, their logits, and the probabilities that budgets are computed from.
        """
        draw = self._draw(draws, generator)
        values = self.scatter(self.stretch(torch.sigmoid(draw.logits / self.temperature)))
        opened = draw.logits > 0 if draw.opened is None else draw.opened
        return MaskSample(values, draw.logits, draw.open_probability, draw.zero_temperature, opened)

    def forward(self, draws: int, generator: torch.Generator) -> MaskSample:
        """Call `sample`, so that the module can be wrapped (compiled, distributed).

        Parameters
        ----------
        draws, generator
            As in `sample`.

        Returns
        -------
        MaskSample
        """
        return self.sample(draws, generator)

    # Summaries, without gradient.
    @torch.no_grad()
    def marginals(self) -> Tensor:
        """Compute the zero-temperature marginals `P(S_i = 1)`.

        Returns
        -------
        Tensor
            `(sites,)`, without gradient. Deterministic: where there is no closed form, fixed draws are used.
        """
        return self._marginals()

    def count(self) -> float:
        """Compute the expected number of sites that the zero-temperature mask opens.

        Returns
        -------
        float
            Sum of the marginals. Unlike the expected L0 (`MaskSample.expected_l0`), it does not count sites that are
            only partly open at the current temperature.
        """
        return float(self.marginals().sum())

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
        return concentration_of(self.marginals(), k)

    @torch.no_grad()
    def covariance(self) -> Tensor:
        """Compute the covariance of the logits.

        Returns
        -------
        Tensor
            `(sites, sites)`, without gradient.

        Raises
        ------
        SettingsError
            The sites of this distribution are independent.
        """
        if not self.correlated:
            raise SettingsError(f"mask distribution {self.name!r} has independent sites and no covariance")
        return self._covariance()

    @abstractmethod
    def interior_modes(self) -> Tensor:
        """Find the sites whose mask density has a mode strictly inside (0, 1).

        The mask of such a site is not nearly binary: a reconstructor can recover the site's value from a partly open
        mask, which defeats the budget. The paper lowers the temperature until there is none.

        Returns
        -------
        Tensor
            Bool, `(sites,)`.
        """

    # Updates of the parameters other than by gradient.
    @torch.no_grad()
    def shift(self, delta: float) -> None:
        """Add a constant to the logits of all sites.

        Parameters
        ----------
        delta
            Positive opens more sites, negative fewer; the ranking of the logits of a draw is unchanged.
        """
        self._shift_logits(self._filled(delta))

    def latent_weights(self) -> list[nn.Parameter]:
        """List the weights of a shared latent vector, for an optimiser group of their own.

        Many of these weights add up to the standard deviation of one site, so they may need a smaller learning rate.

        Returns
        -------
        list of Parameter
            Empty where there is no such latent.
        """
        return []

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
            Flat C-order grid indices of observable sites.
        selected_marginal
            Marginal of the selected sites, strictly between 0 and 1.
        count
            Sum of all marginals, as far as the bounds allow it; None takes the number of selected sites.

        Raises
        ------
        SettingsError
            `selected_marginal` is not strictly between 0 and 1.
        DataError
            A selected site is not observable.
        """
        if not 0 < selected_marginal < 1:
            raise SettingsError(f"selected_marginal must be strictly between 0 and 1, got {selected_marginal}")
        is_selected = self._is_selected(selected)
        n_selected = int(is_selected.sum())
        remaining = (n_selected if count is None else count) - selected_marginal * n_selected
        others = min(max(remaining / max(self.sites - n_selected, 1), _MIN_WARM_START_MARGINAL), selected_marginal)
        self._shift_logits(self._shift_to_marginals(self._filled(others).masked_fill(is_selected, selected_marginal)))

    def _is_selected(self, selected: SiteIndices) -> Tensor:
        """Mark the observable sites that are in `selected`, `(sites,)`."""
        wanted = torch.tensor(np.asarray(selected, dtype=np.int64), device=self.index.device)
        unknown = wanted[~torch.isin(wanted, self.index)]
        if len(unknown):
            raise DataError(f"warm start: site {int(unknown[0])} is not observable on the {self.grid} grid")
        return torch.isin(self.index, wanted)

    # For subclasses.
    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters(), torch.empty(0)).dtype

    def _filled(self, value: float) -> Tensor:
        """Return a constant for each site, `(sites,)`."""
        return torch.full((self.sites,), value, dtype=self._dtype, device=self.index.device)

    def _normal(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw standard normal numbers on the generator's device and move them to the parameters'."""
        noise = torch.randn(shape, generator=generator, device=generator.device, dtype=self._dtype)
        return noise.to(self.index.device)

    def _uniform(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw uniform numbers in [0, 1) on the generator's device and move them to the parameters'."""
        noise = torch.rand(shape, generator=generator, device=generator.device, dtype=self._dtype)
        return noise.to(self.index.device)

    @abstractmethod
    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        """Draw logits, with the probabilities that belong to them."""

    @abstractmethod
    def _marginals(self) -> Tensor:
        """Return the zero-temperature marginals, `(sites,)`."""

    @abstractmethod
    def _shift_logits(self, delta: Tensor) -> None:
        """Add `delta`, `(sites,)`, to the logits, in place."""

    @abstractmethod
    def _shift_to_marginals(self, marginals: Tensor) -> Tensor:
        """Return the `delta` for `_shift_logits` that gives these zero-temperature marginals."""

    def _covariance(self) -> Tensor:
        """Estimate the covariance of the logits from the reference draws."""
        logits = self._draw(REFERENCE_DRAWS, reference_generator()).logits
        return torch.cov(logits.T).reshape(self.sites, self.sites)

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
