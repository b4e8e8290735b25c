"""AEFS: auto-encoder feature selection with a row-sparse first layer."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.objectives import reconstruction
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.settings import AEFSSettings
from keyhole.training import loop as training
from keyhole.training.loop import After, Task, seeded
from keyhole.training.settings import TrainSettings

__all__ = ["AEFS", "SparseRows"]

_FIRST_CUT, _LAST_CUT = 0.2, 0.8  # share of the run at which pruning begins, and at which K rows remain
_FIRST_WEIGHT = 1e-2  # of the penalty, as a share of a row's first norm
_CHANGE = 1.05  # of the weight in a step
_MEMORY = 0.01  # share of a new gradient in the mean of their squares, as in the optimiser
_SMALL = 1e-6  # below which a gradient counts as none
_CONSTANT = 1e-10


class SparseRows(Task):
    r"""Auto-encoder with one hidden layer from the observable to all valid sites, and a penalty on its rows.

    .. math:: \min \|X - (b_2 + \tanh(b_1 + X_o W_1) W_2)\|_F^2 + \alpha \sum_s \|W_{1,s}\|_F

    After each step of the optimiser the norm of every row is reduced by :math:`\alpha / g_s`, the proximal step of the
    penalty; :math:`g_s` is the root mean square of the row's gradients, by which the optimiser divides its own steps. A
    row that reaches zero stays there, as do those of constant sites. The number of rows allowed falls geometrically
    from all to K: while there are more, :math:`\alpha` rises; otherwise it falls and rows are not shrunk. A step never
    removes more rows than are too many. Weight decay is the optimiser's.

    Parameters
    ----------
    samples
        Scaled training samples.
    k
        Number of rows that remain.
    hidden
        Units of the hidden layer.
    """

    alive: Tensor
    weight: Tensor
    squares: Tensor

    def __init__(self, samples: ScaledSamples, k: int, hidden: int) -> None:
        super().__init__()
        cells = torch.from_numpy(samples.targets)
        readings = cells[:, :, torch.from_numpy(samples.observable)]
        self.samples, self.channels, self.sites = readings.shape
        self.k, self.allowed = k, self.sites
        self.encode = nn.Linear(self.channels * self.sites, hidden)
        self.decode = nn.Linear(hidden, cells[0].numel())
        self.register_buffer("readings", readings.flatten(1), persistent=False)
        self.register_buffer("values", cells.flatten(1), persistent=False)
        spread = readings.double().var(dim=0).sum(dim=0)
        self.register_buffer("alive", spread > _CONSTANT * spread.max())
        self.register_buffer("weight", _FIRST_WEIGHT * self.norms().mean())
        self.register_buffer("squares", torch.zeros(self.sites))

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """Reconstruct a batch through the hidden layer."""
        readings, cells = self.get_buffer("readings")[batch], self.get_buffer("values")[batch]
        reconstructed = self.decode(torch.tanh(self.encode(readings)))
        return {"reconstruction": reconstruction(reconstructed, cells)}, self.after

    def begin(self, progress: float) -> None:
        """Lower the number of rows allowed."""
        share = min(max((progress - _FIRST_CUT) / (_LAST_CUT - _FIRST_CUT), 0.0), 1.0)
        self.allowed = math.ceil(self.sites * (self.k / self.sites) ** share)

    @torch.no_grad()
    def after(self) -> None:
        """Update the running mean of squared gradients, and apply the proximal step."""
        if self.encode.weight.grad is not None:
            self.squares.lerp_(self._of_sites(self.encode.weight.grad), _MEMORY)
        self.shrink()

    @torch.no_grad()
    def shrink(self) -> None:
        """Apply the proximal step while there are too many rows, and adapt the weight of the penalty."""
        kept = self.alive.float()
        if int(self.alive.sum()) > self.allowed:
            kept = torch.relu(1 - self._shrinkage())
            self.weight *= _CHANGE
        elif self.allowed < self.sites:
            self.weight /= _CHANGE
        self.encode.weight *= kept.repeat(self.channels)
        self.alive &= kept > 0

    def norms(self) -> Tensor:
        """Norm of each site's rows, all its channels together."""
        return self._of_sites(self.encode.weight.detach()).sqrt()

    def figures(self) -> dict[str, float]:
        """Number of non-zero rows, and the weight of the penalty."""
        return {"rows": float(self.alive.sum()), "penalty": float(self.weight)}

    def _shrinkage(self) -> Tensor:
        """Relative shrinkage of each row's norm, at least one where the row becomes zero."""
        gradients = self.squares.sqrt()
        typical = gradients[self.alive].mean().clamp_min(_SMALL)
        shrinkage = self.weight * typical / gradients.clamp_min(_SMALL * typical) / self.norms()
        shrinkage = torch.where(self.alive, shrinkage, torch.inf)
        first_too_many = shrinkage.sort().values[self.allowed]
        return shrinkage / first_too_many.clamp_min(1.0)

    def _of_sites(self, weights: Tensor) -> Tensor:
        """Sum of squares over the hidden units and channels of each site."""
        return weights.reshape(-1, self.sites).square().sum(dim=0)


class AEFS(Selector):
    """Auto-encoder feature selection (Han et al., 2018): sites ranked by the rows of a sparse first layer.

    The weight of the penalty is adapted during training so that K rows remain, see `SparseRows`.

    Parameters
    ----------
    settings
        Fields of `AEFSSettings`, by name.

    References
    ----------
    Han, Wang, Zhang, Li & Xu (2018). Autoencoder inspired unsupervised feature selection. ICASSP.

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]
    >>> samples = kh.read(values.astype(np.float32)).as_scaled()
    >>> quick = {"steps": 60, "batch_size": 16, "ema_decay": 0.0}
    >>> len(AEFS(n_hidden=8, train=quick).select(samples, 2, validation=None, run=Run()).sites)
    2
    """

    name: ClassVar[str] = "aefs"
    settings_class: ClassVar[type[AEFSSettings]] = AEFSSettings
    options: AEFSSettings

    def refit(self, found: Selection, development: ScaledSamples, run: Run) -> Selection:
        """Keep the sites, which took a training to find; see `Selector.refit`."""
        return found

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Train until ``k`` rows remain."""
        chosen = self.options.train or _train_settings(len(train))
        with seeded(run.seed_of("aefs weights")):
            task = SparseRows(train, k, self.options.n_hidden)
        identity = f"{train.fingerprint()} {k} {self.options} {chosen} {run.seed}"
        history = training.train(task, chosen, name=f"learn {self.name}", identity=identity, run=run)
        norms = task.norms().cpu().numpy()
        order = np.argsort(-norms, kind="stable")[: np.count_nonzero(norms)]
        sites = np.flatnonzero(train.observable)[order]
        return Selection(complete(sites, k, train), history, {"rows": len(order)})


def _train_settings(samples: int) -> TrainSettings:
    """Long enough to prune a few rows at a time; no EMA of weights, since pruned rows must be zero."""
    return TrainSettings(steps=2000, batch_size=int(min(256, max(16, samples // 8))), ema_decay=0.0)
