"""The logit-normal distribution of one site: density, temperature, and the stretch that gives it atoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyhole.masks import IndependentLogitNormal
from keyhole.report.style import INK, SMALL, WIDE, colours, heading, new_figure, tidy

__all__ = ["LogitNormal", "densities"]

Numbers = NDArray[np.float64]

_POINTS = 4001
_REACH = 14.0  # logits beyond which no density is drawn
_HIGHEST = 4.2  # of the densities shown: those that pile up at the ends go beyond
_TALL = 3.7


@dataclass(frozen=True)
class LogitNormal:
    r"""The mask of one site.

    .. math::
        u \sim N(\mu, \sigma^2), \quad Y = \mathrm{sigmoid}(u / \lambda), \quad
        S = \mathrm{clip}((\eta - \gamma) Y + \gamma,\ 0,\ 1)

    Parameters
    ----------
    mu
        Mean of the logit.
    sigma
        Standard deviation of the logit.
    lam
        Temperature.
    gamma
        Lower end of the stretched interval, below 0.
    eta
        Upper end of the stretched interval, above 1.

    Examples
    --------
    >>> one = LogitNormal(0.0, 1.0)
    >>> round(float(one.density(np.array([0.5]))[0]), 3), round(sum(one.atoms()), 3)
    (1.596, 0.016)
    """

    mu: float
    sigma: float
    lam: float = 1.0
    gamma: float = -0.1
    eta: float = 1.1

    @classmethod
    def start(cls, mu: float = 0.0) -> LogitNormal:
        """Return the distribution that training starts from.

        Parameters
        ----------
        mu
            Shift of the mean of the logit.

        Returns
        -------
        LogitNormal
            The distribution of one site.
        """
        distribution = IndependentLogitNormal(1)
        location, spread = (float(moment.detach()) for moment in distribution.moments())
        return cls(location + mu, spread, distribution.temperature, distribution.gamma, distribution.eta)

    def density(self, y: Numbers) -> Numbers:
        """Density of `Y` in (0, 1): the normal one of its logit, divided by `y (1 - y)`.

        Parameters
        ----------
        y
            Values in (0, 1).

        Returns
        -------
        ndarray
            Density at each value.
        """
        mean, spread = self.mu / self.lam, self.sigma / self.lam
        standard = (np.log(y) - np.log1p(-y) - mean) / spread
        return np.exp(-(standard**2) / 2) / (math.sqrt(2 * math.pi) * spread * y * (1 - y))

    def stretched(self, s: Numbers) -> Numbers:
        """Density of `S` in (0, 1), where it was not clipped; the rest of the probability is in the atoms.

        Parameters
        ----------
        s
            Values in (0, 1).

        Returns
        -------
        ndarray
            Density at each value.
        """
        return self.density((s - self.gamma) / (self.eta - self.gamma)) / (self.eta - self.gamma)

    def atoms(self) -> tuple[float, float]:
        """Return the probabilities of the atoms.

        Returns
        -------
        tuple of float
            `P(S = 0)` and `P(S = 1)`.
        """
        u = NormalDist(self.mu, self.sigma)
        lower, upper = math.log(-self.gamma / self.eta), math.log((1 - self.gamma) / (self.eta - 1))
        return u.cdf(self.lam * lower), 1 - u.cdf(self.lam * upper)


def densities() -> Figure:
    """Draw logit-normal densities, LN(0, 1) at falling temperatures, and the stretched distribution with its atoms.

    Returns
    -------
    Figure
        Three panels.
    """
    figure = new_figure(WIDE, _TALL)
    figure.set_layout_engine("constrained", w_pad=0.07, h_pad=0.06)
    shapes, temperatures, stretched = figure.subplots(1, 3)
    _draw_shapes(shapes)
    _draw_temperatures(temperatures)
    _draw_stretched(stretched)
    return figure


def _draw_shapes(axes: Axes) -> None:
    """Draw the three densities of the paper's figure and LN(0, 1)."""
    ways = {
        (0, 1): ("-", "peaks inside"),
        (0, 1.78): ("--", "flat"),
        (0, 3): (":", "two modes"),
        (2, 1): ("-.", "leans to 1"),
    }
    for ((mu, sigma), (dash, word)), colour in zip(ways.items(), colours(len(ways)), strict=True):
        label = f"μ = {mu}, σ = {sigma}: {word}"
        _curve(axes, LogitNormal(mu, sigma), label, color=colour, linestyle=dash)
    _finish(axes, "(a) Y = sigmoid(u),  u ~ N(μ, σ²)", "y")


def _draw_temperatures(axes: Axes) -> None:
    for lam, colour in zip((1, 0.5, 0.3, 0.1), ("#9ecae1", "#5ba3cf", "#2171b5", "#08306b"), strict=True):
        _curve(axes, LogitNormal(0, 1, lam), f"λ = {lam}", color=colour)
    _finish(axes, "(b) Y = sigmoid(u / λ),  u ~ N(0, 1)", "y", columns=2)


def _draw_stretched(axes: Axes) -> None:
    """Draw what is left of the density inside, and stems as high as the probabilities of 0 and 1."""
    distributions = {"as training starts": LogitNormal.start(), "μ lower by 0.8": LogitNormal.start(-0.8)}
    s = np.linspace(0, 1, _POINTS)
    for (label, distribution), colour, out in zip(
        distributions.items(), colours(len(distributions)), (False, True), strict=True
    ):
        axes.plot(s, distribution.stretched(s), color=colour, linewidth=1.6, label=label)
        _stems(axes, distribution.atoms(), colour, out=out)
    _finish(axes, "(c) S: stretched and clipped", "s")
    axes.set(xlim=(-0.24, 1.24), ylim=(0, 1.6), ylabel="density; stems: probability")


def _stems(axes: Axes, atoms: Sequence[float], colour: str, *, out: bool) -> None:
    """Draw the atoms at 0 and 1, or a little outside with their numbers beyond, so that two do not meet."""
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, "color": colour}
    for place, chance, side in zip((0.0, 1.0), atoms, (-1, 1), strict=True):
        x = place + (0.03 * side if out else 0.0)
        axes.vlines(x, 0, chance, colors=colour, linewidth=1.6)
        axes.plot(x, chance, "o", color=colour, markersize=5)
        away = side if out else -side
        axes.annotate(f"{chance:.2f}", (x, chance), (6 * away, 0), ha="left" if away > 0 else "right", **style)


def _curve(axes: Axes, distribution: LogitNormal, label: str, **style: Any) -> None:
    """Draw a density at points that lie close where it is steep, near both ends."""
    y = 1 / (1 + np.exp(-np.linspace(-_REACH, _REACH, _POINTS)))
    axes.plot(y, distribution.density(y), label=label, linewidth=1.6, **style)
    axes.set(xlim=(0, 1), ylim=(0, _HIGHEST), ylabel="density")


def _finish(axes: Axes, title: str, variable: str, *, columns: int = 1) -> None:
    """Title, labels, and a legend under the axes, out of the way of the curves."""
    heading(axes, title)
    axes.set_xlabel(variable)
    tidy(axes)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 4, 5, 10)))
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, frameon=False, fontsize=SMALL, labelcolor=INK,
    )  # fmt: skip
