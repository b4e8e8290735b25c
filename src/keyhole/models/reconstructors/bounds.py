"""Bounds on values, such as no ink or no rain: detected in the samples, enforced by networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import PlanError
from keyhole.core.storage import array_of
from keyhole.data.scaled_samples import ScaledSamples

__all__ = ["ValueBounds"]

_MIN_SHARE = 0.01  # of a channel's values equal to its extreme, from which that is a bound and not the end of a tail
_TOLERANCE = 1e-5  # of the comparison with the extreme, in standard deviations


class ValueBounds(nn.Module):
    """Clamp predictions to lower and upper bounds, with a straight-through gradient.

    The gradient is that of the identity. Where the truth equals the bound, a prediction beyond it is exact and has zero
    error, hence no gradient; elsewhere the gradient pulls it back, so that no site is stuck beyond its bound.

    Parameters
    ----------
    low, high
        ``(channels * m,)``, infinite where there is no bound.

    References
    ----------
    Bengio, Léonard & Courville (2013), *Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
    Computation* (straight-through estimator).

    Examples
    --------
    >>> import torch
    >>> ValueBounds(torch.zeros(3), torch.full((3,), torch.inf))(torch.tensor([[-1.0, 0.5, 7.0]]))
    tensor([[0.0000, 0.5000, 7.0000]])
    """

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)

    @classmethod
    def found(cls, train: ScaledSamples) -> Self | None:
        """Detect bounds of scaled samples: the extremes of a channel that at least 1 % of its values attain.

        Returns
        -------
        ValueBounds or None
            None if there are no bounds, or if the scaling subtracts a climatology, so that bounds vary with time.
        """
        if train.offset is None:
            return None
        zero = np.asarray(train.offset, np.float32)
        found = [_detected_bounds(train.known_targets[:, channel] + zero[channel]) for channel in range(train.channels)]
        low, high = np.transpose(np.asarray(found, np.float32))[:, :, None] - zero
        return cls.of(low, high) if np.isfinite([low, high]).any() else None

    @classmethod
    def of(cls, low: NDArray[np.float32], high: NDArray[np.float32]) -> Self:
        """Create bounds from two arrays of any equal shape."""
        return cls(*(torch.from_numpy(np.ascontiguousarray(part, np.float32)).flatten() for part in (low, high)))

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], prefix: str, outputs: int) -> Self | None:
        """Recover bounds from the arrays of a file.

        Parameters
        ----------
        arrays
            All arrays of the reconstructor.
        prefix
            Of the names of the bounds' arrays.
        outputs
            Number of channels times valid sites.

        Returns
        -------
        ValueBounds or None
            None if no array has the prefix.

        Raises
        ------
        PlanError
            If shapes are wrong, or no value satisfies both bounds.
        """
        if not any(name.startswith(prefix) for name in arrays):
            return None
        low, high = (array_of(arrays, f"{prefix}{end}", (outputs,)) for end in ("low", "high"))
        if not ((low <= high) & (low < np.inf) & (high > -np.inf)).all():
            raise PlanError(f"the arrays {prefix + 'low'!r} and {prefix + 'high'!r} leave nothing between them")
        return cls.of(low, high)

    def forward(self, values: Tensor) -> Tensor:
        """Clamp ``(N, channels * m)`` to the bounds."""
        clamped = values.clamp(self.get_buffer("low"), self.get_buffer("high"))
        return values + (clamped - values).detach() if torch.is_grad_enabled() else clamped

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return both bounds as arrays, for a file."""
        return {name: self.get_buffer(name).cpu().numpy() for name in ("low", "high")}


def _detected_bounds(values: NDArray[np.floating]) -> tuple[float, float]:
    """Minimum and maximum, ignoring NaN; infinite where too few values attain them."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    known = max(1, int(np.count_nonzero(~np.isnan(values))))
    at_low, at_high = np.count_nonzero(values <= low + _TOLERANCE), np.count_nonzero(values >= high - _TOLERANCE)
    return (low if at_low >= _MIN_SHARE * known else -np.inf, high if at_high >= _MIN_SHARE * known else np.inf)
