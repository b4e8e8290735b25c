"""Small moves of pictures, so that a network sees more of them than there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from keyhole.data.samples import Samples
from keyhole.models.reconstructors.linear import LinearReconstructor

__all__ = ["Augmentation"]

# Half a pixel to a pixel of MNIST's 28: what no eye would mind.
_TURN, _SHEAR, _STRETCH = 0.08, 0.08, 0.06
_SHIFT = 0.07  # of half the picture's side
_SHARE = 0.5  # of the pictures that are nudged; the rest stay sharp
_AS_LIKELY = 1.15  # times the linear error on true pictures, up to which moved ones pass for true
_AS_TOLD = 0.85  # of the share that is rebuilt of true pictures, from which on moved ones pass
_LEAST_TOLD = 0.1  # of true pictures that must be rebuilt: where nothing is, nothing tells moved ones apart
_MOST_JUDGED = 2000


@dataclass(frozen=True, eq=False)
class Augmentation:
    """Moves that leave pictures as likely as they were: a nudge (turn, shear, stretch, shift), and mirrors.

    A picture is moved as it was before the mean was taken off; what comes in from outside is as the border.

    Parameters
    ----------
    zero
        ``(channels, rows, columns)``, the mean that was taken off, in the same scale.
    nudged
        Whether half of the pictures are nudged.
    mirrored
        Whether half of them are mirrored, top to bottom and left to right.
    """

    zero: Tensor
    nudged: bool = False
    mirrored: tuple[bool, bool] = (False, False)

    @classmethod
    def found(
        cls, linear: LinearReconstructor, train: Samples, validation: Samples, sites: NDArray[np.int64]
    ) -> Self | None:
        """Give the moves after which the linear part rebuilds pictures as well as before; None where there are none.

        Validation pictures tell. Samples with a time or with context, and grids with cells outside, are not pictures.
        """
        if not _are_pictures(train):
            return None
        still = cls(torch.from_numpy(np.asarray(train.zero, np.float32)))
        judged = torch.from_numpy(validation.values[:_MOST_JUDGED])
        left, told = _left(linear, judged, sites)
        if told < _LEAST_TOLD:
            return None
        kinds = {"nudge": replace(still, nudged=True)}
        kinds |= {f"mirror {axis}": replace(still, mirrored=(axis == 0, axis == 1)) for axis in (0, 1)}
        found = {name: _left(linear, kind.always(judged), sites) for name, kind in kinds.items()}
        likely = {name: e <= _AS_LIKELY * left and t >= _AS_TOLD * told for name, (e, t) in found.items()}
        if not any(likely.values()):
            return None
        return replace(still, nudged=likely["nudge"], mirrored=(likely["mirror 0"], likely["mirror 1"]))

    def always(self, pictures: Tensor) -> Tensor:
        """Move every one of ``(N, channels, rows, columns)``, each by its own draw."""
        return self(pictures, torch.Generator().manual_seed(0), share=1.0)

    def __call__(self, pictures: Tensor, generator: torch.Generator, share: float = _SHARE) -> Tensor:
        """Move a share of ``(N, channels, rows, columns)``, each by its own draw.

        Between cells by cubics, which keep edges as sharp as they were, within the values of the picture: a network
        that is shown blurred pictures learns that those are easy.
        """
        maps, zero = (part.to(pictures.device) for part in (self._maps(len(pictures), generator, share), self.zero))
        plain, places = pictures + zero, _places(maps, pictures.shape[2], pictures.shape[3])
        moved = functional.grid_sample(plain, places, mode="bicubic", padding_mode="border", align_corners=False)
        return moved.clamp(plain.amin((2, 3), keepdim=True), plain.amax((2, 3), keepdim=True)) - zero

    def _maps(self, n: int, generator: torch.Generator, share: float) -> Tensor:
        """Draw ``(n, 2, 3)``: where each place of a moved picture is taken from, x before y."""
        nudged = (torch.rand(n, generator=generator) < share) & self.nudged
        turn, shear, high, wide, across, down = (2 * torch.rand(6, n, generator=generator) - 1) * nudged
        upside, aside = ((torch.rand(2, n, generator=generator) < share) & torch.tensor(self.mirrored)[:, None]).float()
        angle, high = _TURN * turn, (1 + _STRETCH * high) * (1 - 2 * upside)
        wide = (1 + _STRETCH * wide) * (1 - 2 * aside)
        rows = [
            torch.stack([wide * angle.cos(), _SHEAR * shear - wide * angle.sin(), _SHIFT * across]),
            torch.stack([high * angle.sin(), high * angle.cos(), _SHIFT * down]),
        ]
        return torch.stack(rows).permute(2, 0, 1)


def _places(maps: Tensor, rows: int, columns: int) -> Tensor:
    """Where each cell is taken from, ``(n, rows, columns, 2)``: `functional.affine_grid` in one product.

    That one multiplies picture by picture, and threads waited for each other for half of a dense network's step.
    """
    down, across = ((2 * torch.arange(count, device=maps.device) + 1) / count - 1 for count in (rows, columns))
    y, x = torch.cartesian_prod(down, across).T
    cells = torch.stack([x, y, torch.ones_like(x)])
    return (maps.reshape(-1, 3) @ cells).reshape(len(maps), 2, rows, columns).permute(0, 2, 3, 1)


def _are_pictures(signals: Samples) -> bool:
    known = signals.covariates is not None and signals.covariates.shape[1] > 0
    plain = len(signals.grid.shape) == 2 and bool(signals.grid.inside.all())
    return plain and signals.zero is not None and signals.time is None and signals.gaps is None and not known


def _left(linear: LinearReconstructor, pictures: Tensor, sites: NDArray[np.int64]) -> tuple[float, float]:
    """Mean squared error of the linear part, and the share that it rebuilds, in cells that are not read."""
    values = pictures.numpy()
    readings = values.reshape(len(values), values.shape[1], -1)[:, :, sites].transpose(0, 2, 1)
    unread = np.delete(np.arange(values[0, 0].size), sites)
    truth, reconstructed = (
        part.reshape(*part.shape[:2], -1)[:, :, unread] for part in (values, linear.reconstruct(readings))
    )
    left, energy = (float(np.square(part, dtype=np.float64).mean()) for part in (truth - reconstructed, truth))
    return left, 1 - left / max(energy, np.finfo(float).tiny)
