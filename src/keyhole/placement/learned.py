"""The learned selector: a law of masks and the network behind it, trained together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.core.settings import parse
from keyhole.data.samples import Samples
from keyhole.masks import MASK_DISTRIBUTIONS, MaskDistribution, MaskSample, collapse, concentration_of
from keyhole.masks.budgets import Budget, CountBudget, DualAscent, ExactK, L0Penalty
from keyhole.masks.collapse import Sites
from keyhole.placement.base import Selection, Selector, complete
from keyhole.placement.classical import QR, Greedy, rank_sites
from keyhole.placement.learned_objectives import MaskObjective, make_objective
from keyhole.placement.scorer import Scorer, make_scorer
from keyhole.placement.settings import LearnedSettings
from keyhole.training import loop as training
from keyhole.training.loop import After, Task, seeded
from keyhole.training.settings import TrainSettings

__all__ = ["Learned"]

_WARM: dict[str, type[Greedy] | type[QR]] = {"greedy": Greedy, "qr": QR}
_CONCENTRATED = 0.95
_SPREAD = 0.02  # share of the count that soft masks keep spread over all sites, so that none is beyond reach


class JointTask(Task):
    """Law, budget and goal on one loss.

    Each batch is seen through a few masks of the law, each shared by several signals; the loss is what the goal makes
    of that plus what the budget asks. Of several processes each draws all masks and sees its part of the batch through
    its part of them.
    """

    needs_whole_batch: ClassVar[bool] = True
    seen: Tensor | None

    def __init__(
        self,
        distribution: MaskDistribution,
        budget: Budget,
        goal: MaskObjective,
        signals: Samples,
        settings: LearnedSettings,
        k: int,
        rate: float,
    ) -> None:
        super().__init__()
        self.distribution, self.budget, self.goal = distribution, budget, goal
        self.settings, self.k, self.rate = settings, k, rate
        self.samples, self.first_count, self.source = signals.taught, distribution.count(), signals.source
        if self.source is None:
            truth, seen = _truth(signals), signals.seen()
            self.register_buffer("signals", torch.from_numpy(truth), persistent=False)
            self.register_buffer("seen", None if seen is truth else torch.from_numpy(seen), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """See a batch through masks of the law."""
        sample = self.distribution.sample(self.processes.whole(min(self.settings.n_masks, len(batch))), generator)
        mine, masks = self.processes.mine(batch), self.processes.mine(self.budget.masks(self.distribution, sample))
        x, seen = self._samples(mine)
        parts = self.goal(x, seen, masks, mine, generator)
        return parts | {"budget": self.budget.loss(self.distribution, sample)}, partial(self._after, sample)

    def order(self, generator: torch.Generator) -> Tensor:
        """Draw an order, by chunks of the file where samples are not in memory."""
        return super().order(generator) if self.source is None else self.source.order(generator)

    def _samples(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Give signals, and what sensors would see of them."""
        if self.source is not None:
            x = torch.from_numpy(self.source.fetch(batch.cpu().numpy())).to(batch.device)
            return x, x
        x = self.get_buffer("signals").index_select(0, batch)
        return x, x if self.seen is None else self.seen.index_select(0, batch)

    def _after(self, sample: MaskSample) -> None:
        self.budget.update(self.distribution, sample)
        if self.settings.masks == "soft":
            self.distribution.polarise(sample, _SPREAD * self.wanted() / self.distribution.sites)

    def wanted(self) -> int:
        """Give the K that the budget holds now, or the one asked for where it holds none."""
        return self.budget.k if isinstance(self.budget, CountBudget) else self.k

    def groups(self) -> list[dict[str, Any]]:
        """Let the law move faster than the network, and without decay, which would pull it to a half."""
        latent, step = self.distribution.latent_weights(), self.settings.mask_learning_rate
        others = [one for one in self.distribution.parameters() if not any(one is weight for weight in latent)]
        distribution = [(others, step), (latent, step * self.settings.latent_learning_rate)]
        groups = [{"params": params, "lr": lr, "weight_decay": 0.0} for params, lr in distribution if params]
        return [{"params": list(self.goal.parameters()), "lr": self.rate}, *groups]

    def begin(self, progress: float) -> None:
        """Lower the temperature geometrically, and K likewise where it is to fall."""
        first, last = self.settings.temperature
        self.distribution.temperature = first * (last / first) ** progress
        if self.settings.k_anneal and isinstance(self.budget, CountBudget):
            left = max(0.0, 1 - progress / self.settings.k_anneal)
            self.budget.k = round(self.k * (max(self.first_count, self.k) / self.k) ** left)

    def figures(self) -> dict[str, float]:
        """Expected L0, count and concentration of the law."""
        with torch.no_grad():
            sample = self.distribution.sample(1, torch.Generator().manual_seed(0))
        marginals = self.distribution.marginals()
        return {
            "expected_l0": float(sample.expected_l0),
            "count": float(marginals.sum()),
            "concentration": concentration_of(marginals, self.k),
            "temperature": self.distribution.temperature,
        }


class Learned(Selector):
    """Where to look and how to rebuild, learned together (Dona & Gallinari), then collapsed to K sites.

    Parameters
    ----------
    settings
        Those of `LearnedSettings`, by name.
    """

    name: ClassVar[str] = "learned"
    supervised: ClassVar[bool] = True

    def __init__(self, **settings: Any) -> None:
        self._settings = parse(LearnedSettings, settings)

    @property
    def requires_validation(self) -> bool:
        """The best of several joint samples is chosen on validation."""
        return self._settings.collapse == "best"

    def settings(self) -> dict[str, Any]:
        """Give all settings."""
        return self._settings.model_dump()

    def incompatibility(self, signals: Samples) -> str | None:
        """Tell that convolutions need two axes, and that they tell no target."""
        if self._settings.objective == "gan" and signals.gaps is not None:
            return "its discriminator needs whole signals, and some values are missing"
        shape, convolves = signals.choices, self._settings.objective == "gan" or self._settings.decoder == "resnet"
        if convolves and len(shape) != 2:
            return f"convolutions need a grid of two axes, not of shape {shape}"
        return "convolutions rebuild signals, they tell no target" if convolves and signals.target is not None else None

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Train the law, then collapse it."""
        task, history = self.learn(train, k, run)
        distribution = task.distribution
        concentration = distribution.concentration(k)
        notes = {
            "concentration": concentration,
            "concentrated": concentration > _CONCENTRATED,
            "count": distribution.count(),
            "interior_modes": float(distribution.interior_modes().float().mean()),
        }
        scorer = partial(make_scorer, train, train if validation is None else validation, run)
        sites = self._collapse(distribution, k, scorer, run, partial(complete, k=k, train=train))
        if train.target is not None:
            return Selection(sites, history, notes, distribution=distribution)
        return Selection(
            rank_sites(train, sites, run), history, notes, partial(task.goal.reconstruct, sites=sites), distribution
        )

    def learn(self, train: Samples, k: int, run: Run) -> tuple[JointTask, list[dict[str, float]]]:
        """Train the law and the network behind it; gives both, on the CPU, and the history."""
        task, chosen = self._task(train, k, run)
        identity = f"{train.fingerprint()} {k} {self._settings} {chosen} {run.seed}"
        history = training.train(task, chosen, name=f"learn {self._settings.distribution}", identity=identity, run=run)
        return task.cpu().eval(), history

    def _task(self, signals: Samples, k: int, run: Run) -> tuple[JointTask, TrainSettings]:
        settings = self._settings
        distribution = self._distribution(signals, torch.Generator().manual_seed(run.seed_of("law")))
        if settings.warm_start != "none" and signals.target is None:
            start = _WARM[settings.warm_start]().select(signals, k, validation=None, run=run)
            distribution.warm_start(start.sites)
        with seeded(run.seed_of("decoder")):
            goal = make_objective(signals, k, settings)
        chosen = settings.train or _train_settings(signals.taught)
        return JointTask(
            distribution, self._budget(k, goal.unit), goal, signals, settings, k, chosen.learning_rate
        ), chosen

    def _distribution(self, signals: Samples, generator: torch.Generator) -> MaskDistribution:
        kind = MASK_DISTRIBUTIONS[self._settings.distribution]
        latent = {"rank": self._settings.rank} if kind.correlated else {}
        observable = torch.from_numpy(signals.observable)
        return kind(observable, temperature=self._settings.temperature[0], generator=generator, **latent)

    def _budget(self, k: int, unit: float) -> Budget:
        if self._settings.budget == "exact":
            return ExactK(k)
        if self._settings.budget == "dual":
            return DualAscent(k, rate=0.01 * unit, stiffness=0.5 * unit, hard=self._settings.masks == "hard")
        return L0Penalty(self._settings.l0_weight)

    def _collapse(
        self,
        distribution: MaskDistribution,
        k: int,
        scorer: Callable[[], Scorer],
        run: Run,
        legal: Callable[[Sites], Sites],
    ) -> NDArray[np.int64]:
        generator = torch.Generator().manual_seed(run.seed_of("collapse"))
        if self._settings.collapse == "marginal":
            return legal(collapse.marginal(distribution, distribution.sites))
        if self._settings.collapse == "frequency":
            return legal(collapse.frequency(distribution, distribution.sites, draws=4096, generator=generator))
        return collapse.best_of(
            distribution, k, candidates=self._settings.n_candidates, score=scorer(), generator=generator, legal=legal
        )


def _truth(signals: Samples) -> NDArray[np.float32]:
    """Values, NaN where they are missing."""
    return signals.values if signals.gaps is None else np.where(signals.gaps, np.float32(np.nan), signals.values)


def _train_settings(samples: int) -> TrainSettings:
    """Long enough for a law to make up its mind; no averaging, since the law is to be where it ended."""
    batch = int(min(256, max(16, samples // 2)))
    steps = int(min(4000, max(2000, 10 * samples // batch)))
    return TrainSettings(steps=steps, batch_size=batch, ema_decay=0.0)


def _fixed(name: str, fixed: dict[str, Any], given: dict[str, Any]) -> Learned:
    """Give the learned selector with some settings fixed by its name in the registry."""
    for setting in fixed.keys() & given.keys():
        raise SettingsError(f"method {name!r} has its {setting}; take method 'learned' to choose another")
    return Learned(**fixed, **given)


def learned_iln(**settings: Any) -> Learned:
    """Give the learned selector with independent logit-normal masks."""
    return _fixed("iln", {"distribution": "iln"}, settings)


def learned_vln(**settings: Any) -> Learned:
    """Give the learned selector with correlated logit-normal masks."""
    return _fixed("vln", {"distribution": "vln"}, settings)


def learned_hnet(**settings: Any) -> Learned:
    """Give the learned selector with masks of a hyper-network."""
    return _fixed("hnet", {"distribution": "hnet"}, settings)


def learned_sct(**settings: Any) -> Learned:
    """Give the learned selector with hard concrete masks."""
    return _fixed("sct", {"distribution": "sct"}, settings)


def learned_simplex(**settings: Any) -> Learned:
    """Give the learned selector with logit-normal masks on the simplex."""
    return _fixed("simplex", {"distribution": "simplex"}, settings)


def learned_gan(**settings: Any) -> Learned:
    """Give the learned selector with the adversarial objective of pix2pix."""
    return _fixed("cgan", {"objective": "gan"}, settings)
