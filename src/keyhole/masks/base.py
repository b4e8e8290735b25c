"""What every law of masks shares: the sites, the stretch, the sample and what its marginals tell."""

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
    "Chosen",
    "CommonArguments",
    "Draw",
    "MaskDistribution",
    "MaskSample",
    "concentration_of",
    "reference_generator",
    "share",
]

Chosen = Sequence[int] | npt.NDArray[np.int64] | Tensor

REFERENCE_DRAWS = 4096  # of the fixed draws behind whatever has no closed form
_TELLING_DRAWS = 8  # that moments of a sample are taken from
_LEAST_MARGINAL = 1e-3  # a warm start leaves no site further out of reach than this


class CommonArguments(TypedDict, total=False):
    """What a law's constructor takes beside its sites, its generator and its own arguments; see `MaskDistribution`."""

    temperature: float | None
    gamma: float
    eta: float


def concentration_of(marginals: Tensor, k: int) -> float:
    """The share of the marginals' sum that the k largest hold."""
    marginals = marginals.double()
    return float(marginals.topk(k).values.sum() / marginals.sum().clamp_min(1e-300))


def reference_generator() -> torch.Generator:
    """Return a generator in a fixed state: what is sampled with it is a function of the law alone."""
    return torch.Generator().manual_seed(20_211)


class MaskDistribution(nn.Module, ABC):
    r"""A distribution of masks with learned parameters.

    Each draw gives every observable site a logit `u`; the mask is `u` squashed, stretched and clipped:

    .. math:: S = \mathrm{clip}((\eta - \gamma)\,\mathrm{sigmoid}(u / \lambda) + \gamma,\ 0,\ 1)

    so `S = 0` where `u / lam` is at most `lower_logit` and `S = 1` where it is at least `upper_logit`. As
    `lam` goes to 0 the mask becomes `1[u > 0]`; the number of sites it opens on average is the *count*.

    A law implements `_draw`, `_marginals`, `_move`, `_offset` and `interior_modes`, and `_covariance` where
    it has a closed form; it joins `MASK_DISTRIBUTIONS` and is tested by that.

    Parameters
    ----------
    observable
        Bool, of the grid's shape: the sites that may be chosen.
    temperature
        `lam`; training may set the attribute, `state_dict` carries it. None is the law's own default.
    gamma, eta
        Ends of the stretch, `gamma < 0` and `eta > 1`.
    generator
        Draws the initial parameters.
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
        if not self.sites:
            raise DataError(f"no site of the {self.grid} grid is observable; a law needs at least one")
        if not (self.gamma < 0 and self.eta > 1):
            raise SettingsError(f"the stretch takes gamma < 0 and eta > 1, got {self.gamma} and {self.eta}")
        if not self.temperature > 0:
            raise SettingsError(f"temperature takes a positive number, got {self.temperature}")

    # The sites.
    @property
    def sites(self) -> int:
        """How many sites are observable."""
        return len(self.index)

    def pack(self, values: Tensor) -> Tensor:
        """Go from the grid to its observable sites: `(..., *grid)` to `(..., sites)`."""
        return values.flatten(values.dim() - len(self.grid)).index_select(-1, self.index)

    def scatter(self, packed: Tensor) -> Tensor:
        """Go from observable sites to the grid, zero elsewhere: `(..., sites)` to `(..., *grid)`."""
        lead = packed.shape[:-1]
        if self.sites == math.prod(self.grid):
            return packed.reshape(*lead, *self.grid)
        cells = packed.new_zeros(*lead, math.prod(self.grid))
        return cells.index_copy(-1, self.index, packed).reshape(*lead, *self.grid)

    def check_k(self, k: int) -> None:
        """Refuse a number of sites that cannot be had."""
        if not 1 <= k <= self.sites:
            raise InfeasibleError(f"k takes 1 to {self.sites}, the number of observable sites; got {k}")

    # Masks.
    @property
    def lower_logit(self) -> float:
        """`L = log(-gamma / eta)`: the mask is 0 where `u / lam` is not above it."""
        return math.log(-self.gamma / self.eta)

    @property
    def upper_logit(self) -> float:
        """`log((1 - gamma) / (eta - 1))`: the mask is 1 where `u / lam` is not below it."""
        return math.log((1 - self.gamma) / (self.eta - 1))

    def stretch(self, y: Tensor) -> Tensor:
        """Stretch from [0, 1] to [gamma, eta] and clip to [0, 1]."""
        return ((self.eta - self.gamma) * y + self.gamma).clamp(0, 1)

    def sample(self, draws: int, generator: torch.Generator) -> MaskSample:
        """Draw masks, differentiable in the parameters."""
        draw = self._draw(draws, generator)
        values = self.scatter(self.stretch(torch.sigmoid(draw.logits / self.temperature)))
        opened = draw.logits > 0 if draw.opened is None else draw.opened
        return MaskSample(values, draw.logits, draw.open_probability, draw.zero_temperature, opened)

    def forward(self, draws: int, generator: torch.Generator) -> MaskSample:
        """Call `sample`."""
        return self.sample(draws, generator)

    # What the law says, without gradient.
    @torch.no_grad()
    def marginals(self) -> Tensor:
        """Return `P(S_i = 1)` at zero temperature, `(sites,)`; the same at every call."""
        return self._marginals()

    def count(self) -> float:
        """Return the number of sites that the zero-temperature mask opens on average."""
        return float(self.marginals().sum())

    def concentration(self, k: int) -> float:
        """Return the share of the count that the k likeliest sites hold; 1 when the law has settled."""
        self.check_k(k)
        return concentration_of(self.marginals(), k)

    @torch.no_grad()
    def covariance(self) -> Tensor:
        """Return the covariance of the logits, `(sites, sites)`."""
        if not self.correlated:
            raise SettingsError(f"law {self.name!r} draws sites independently: it has no covariance to show")
        return self._covariance()

    @abstractmethod
    def interior_modes(self) -> Tensor:
        """Tell where the density of the mask peaks strictly inside (0, 1), `(sites,)`, bool.

        Such a site is not nearly binary: a reconstructor can read its value through a half-open mask.
        """

    # Moving the law.
    @torch.no_grad()
    def shift(self, delta: float) -> None:
        """Add `delta` to the logits of all sites."""
        self._move(self._filled(delta))

    def latent_weights(self) -> list[nn.Parameter]:
        """Give the weights of a shared latent, of which many make one spread: they may need a smaller step."""
        return []

    @torch.no_grad()
    def polarise(self, sample: MaskSample, least: float) -> None:
        """Remove interior modes where the law has a closed form for that, and keep marginals away from 0 and 1.

        A site that is all but sure gives no gradient, and no budget can change its mind; so its marginal is kept
        between ``least`` and ``1 - least``, by its location. Laws without closed moments take those of ``sample``, if
        it has draws enough to tell them.
        """
        if len(sample.logits) >= _TELLING_DRAWS:
            self._bound(sample.logits.mean(0), sample.logits.std(0).clamp_min(1e-6), least)

    def _bound(self, location: Tensor, spread: Tensor, least: float) -> None:
        furthest = -float(quantile(torch.tensor(least, dtype=torch.float64))) * spread
        self._move(torch.minimum(torch.maximum(location, -furthest), furthest) - location)

    @torch.no_grad()
    def warm_start(self, chosen: Chosen, *, inside: float = 0.8, count: float | None = None) -> None:
        """Start from sites chosen by another method.

        The chosen sites (flat grid indices) get the marginal `inside`; the others share what is left of
        `count` (as many as are chosen unless told), each at least 0.001 and at most `inside`. Only
        locations move, spreads stay.
        """
        if not 0 < inside < 1:
            raise SettingsError(f"inside takes a probability strictly between 0 and 1, got {inside}")
        picked = self._picked(chosen)
        within = int(picked.sum())
        left = (within if count is None else count) - inside * within
        rest = min(max(left / max(self.sites - within, 1), _LEAST_MARGINAL), inside)
        self._move(self._offset(self._filled(rest).masked_fill(picked, inside)))

    def _picked(self, chosen: Chosen) -> Tensor:
        wanted = torch.tensor(np.asarray(chosen, dtype=np.int64), device=self.index.device)
        unknown = wanted[~torch.isin(wanted, self.index)]
        if len(unknown):
            raise DataError(f"warm start: site {int(unknown[0])} is not observable on the {self.grid} grid")
        return torch.isin(self.index, wanted)

    # For the laws.
    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters(), torch.empty(0)).dtype

    def _filled(self, value: float) -> Tensor:
        return torch.full((self.sites,), value, dtype=self._dtype, device=self.index.device)

    def _normal(self, *shape: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(shape, generator=generator, device=generator.device, dtype=self._dtype)
        return noise.to(self.index.device)

    def _uniform(self, *shape: int, generator: torch.Generator) -> Tensor:
        noise = torch.rand(shape, generator=generator, device=generator.device, dtype=self._dtype)
        return noise.to(self.index.device)

    @abstractmethod
    def _draw(self, draws: int, generator: torch.Generator) -> Draw:
        """Logits and probabilities of some draws."""

    @abstractmethod
    def _marginals(self) -> Tensor: ...

    @abstractmethod
    def _move(self, delta: Tensor) -> None:
        """Add `delta`, `(sites,)`, to the logits."""

    @abstractmethod
    def _offset(self, marginals: Tensor) -> Tensor:
        """Return the `delta` that `_move` must add for these zero-temperature marginals."""

    def _covariance(self) -> Tensor:
        logits = self._draw(REFERENCE_DRAWS, reference_generator()).logits
        return torch.cov(logits.T).reshape(self.sites, self.sites)

    def get_extra_state(self) -> Tensor:
        """Give the temperature to `state_dict`, without rounding."""
        return torch.tensor(self.temperature, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the temperature from a `state_dict`."""
        self.temperature = float(state)
