"""Limits that data can not pass, such as no ink or no rain: found in the samples, kept by networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import PlanError
from keyhole.core.storage import array_of
from keyhole.data.samples import Samples

__all__ = ["ValueBounds"]

_SHARE = 0.01  # of a channel's values that stand at its least or largest: then that is a limit, not the last of a tail
_SAME = 1e-5  # of the spread: rounding


class ValueBounds(nn.Module):
    r"""Least and largest value of packed cells; what is beyond is put on the limit.

    The slope passes as if there were no limit (straight through). Where the truth stands at the limit, whatever is
    beyond is right and has no slope; where it does not, the slope draws back, so that no cell is lost beyond its limit.

    Parameters
    ----------
    low, high
        ``(channels * cells,)``, infinite where there is no limit.

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
    def found(cls, train: Samples) -> Self | None:
        """Give the limits of scaled signals; None where there are none, or where they are not the same at all times."""
        if train.zero is None:
            return None
        cells = train.grid.cells
        zero = np.asarray(train.zero, np.float32).reshape(train.channels, -1)[:, cells]
        found = [_ends(train.truth()[:, channel] + zero[channel]) for channel in range(train.channels)]
        low, high = np.transpose(np.asarray(found, np.float32))[:, :, None] - zero
        return cls.of(low, high) if np.isfinite([low, high]).any() else None

    @classmethod
    def of(cls, low: NDArray[np.float32], high: NDArray[np.float32]) -> Self:
        """Make them from arrays of any shape."""
        return cls(*(torch.from_numpy(np.ascontiguousarray(part, np.float32)).flatten() for part in (low, high)))

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], prefix: str, outputs: int) -> Self | None:
        """Take both back from a file, where they have a prefix; None where it has none."""
        if not any(name.startswith(prefix) for name in arrays):
            return None
        low, high = (array_of(arrays, f"{prefix}{end}", (outputs,)) for end in ("low", "high"))
        if not ((low <= high) & (low < np.inf) & (high > -np.inf)).all():
            raise PlanError(f"the arrays {prefix + 'low'!r} and {prefix + 'high'!r} leave nothing between them")
        return cls.of(low, high)

    def forward(self, whole: Tensor) -> Tensor:
        """Keep ``(N, channels * cells)`` within the limits."""
        within = whole.clamp(self.get_buffer("low"), self.get_buffer("high"))
        return whole + (within - whole).detach() if torch.is_grad_enabled() else within

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Give both, for a file."""
        return {name: self.get_buffer(name).cpu().numpy() for name in ("low", "high")}


def _ends(values: NDArray[np.floating]) -> tuple[float, float]:
    """Least and largest of values in which NaN is missing; infinite where too few stand there."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    known = max(1, int(np.count_nonzero(~np.isnan(values))))
    at_low, at_high = np.count_nonzero(values <= low + _SAME), np.count_nonzero(values >= high - _SAME)
    return (low if at_low >= _SHARE * known else -np.inf, high if at_high >= _SHARE * known else np.inf)
