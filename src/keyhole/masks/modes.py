"""Interior modes of mask densities, in closed form from the sign of the derivative of the log density."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["concrete_modes", "logit_normal_modes"]


def logit_normal_modes(location: Tensor, spread: Tensor, lower: float, upper: float) -> Tensor:
    r"""Test whether a logit-normal density has a local maximum between two logits.

    With `t = logit(y) ~ N(m, s^2)` the density of `y` is `N(t; m, s^2) / (y (1 - y))`, and

    .. math:: \frac{d \log f}{dt} = -\frac{g(t)}{s^2}, \qquad g(t) = t - m - s^2 \tanh(t / 2)

    so maxima are the upward zero crossings of `g`. `g` is increasing if `s^2 <= 2`; otherwise it is increasing outside
    `(-t*, t*)`, where `cosh(t* / 2)^2 = s^2 / 2`. An increasing section has a crossing if `g` changes sign over it.

    Parameters
    ----------
    location, spread
        `m` and `s`: mean and standard deviation of the logit after division by the temperature.
    lower, upper
        The logits beyond which the stretched mask is clipped.

    Returns
    -------
    Tensor
        Bool, of the shape of `location`.

    References
    ----------
    .. [1] J. Aitchison and S. M. Shen. Logistic-Normal Distributions: Some Properties and Uses. Biometrika 67, 1980.

    Examples
    --------
    >>> logit_normal_modes(torch.zeros(2), torch.tensor([1.0, 3.0]), -2.4, 2.4).tolist()
    [True, False]
    """
    square = spread.square()
    turn = 2 * torch.acosh((square / 2).clamp_min(1).sqrt())
    low, high = torch.full_like(location, lower), torch.full_like(location, upper)

    def slope(t: Tensor) -> Tensor:
        return t - location - square * torch.tanh(t / 2)

    def peaks(start: Tensor, end: Tensor) -> Tensor:
        return (start < end) & (slope(start) < 0) & (slope(end) > 0)

    outside = peaks(low, torch.minimum(-turn, high)) | peaks(torch.maximum(turn, low), high)
    return torch.where(square <= 2, peaks(low, high), outside)


def concrete_modes(log_alpha: Tensor, temperature: float, lower: float, upper: float) -> Tensor:
    r"""Test whether a binary concrete density has a local maximum between two logits.

    .. math::
        \frac{d \log f}{dt} = -g(t), \qquad
        g(t) = \lambda \tanh((\lambda t - \log \alpha) / 2) - \tanh(t / 2)

    Where `g` is zero, `g' = (lam^2 - 1) / 2`: every zero crossing is downward for `lam < 1` (no
    maximum), upward and hence unique for `lam > 1`.

    Parameters
    ----------
    log_alpha
        Location of the logits.
    temperature
        `lam`.
    lower, upper
        The logits beyond which the stretched mask is clipped.

    Returns
    -------
    Tensor
        Bool, of the shape of `log_alpha`.

    Examples
    --------
    >>> [concrete_modes(torch.zeros(1), lam, -2.4, 2.4).item() for lam in (0.5, 2.0)]
    [False, True]
    """

    def slope(t: float) -> Tensor:
        tangent = torch.tanh(log_alpha.new_tensor(t / 2))
        return temperature * torch.tanh((temperature * t - log_alpha) / 2) - tangent

    return (slope(lower) < 0) & (slope(upper) > 0) & (temperature > 1)
