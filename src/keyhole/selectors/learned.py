"""The learned selector: a law of masks and a reconstructor, trained together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole import collapse, training
from keyhole.budget import Budget, DualAscent, ExactK, Penalty
from keyhole.laws import LAWS, Law, concentration_of
from keyhole.objectives import reconstruction
from keyhole.reconstructors.conditional import DECODERS, ConditionalReconstructor
from keyhole.run import Run
from keyhole.selectors.base import Selection, Selector
from keyhole.selectors.classical import QR, Greedy
from keyhole.selectors.scoring import RidgeScore
from keyhole.settings import LearnedSettings, TrainSettings, parse
from keyhole.signals import Signals
from keyhole.training import After, Task, seeded

__all__ = ["Learned"]

_WARM: dict[str, type[Greedy] | type[QR]] = {"greedy": Greedy, "qr": QR}
_ENOUGH_FOR_A_NETWORK = 5000
_CONCENTRATED = 0.95


class Joint(Task):
    """Law, budget and conditional reconstructor on one loss.

    Each batch is seen through a few masks of the law, each shared by several signals; the loss is the error of the
    reconstruction plus what the budget asks.
    """

    def __init__(
        self, law: Law, budget: Budget, decoder: ConditionalReconstructor, signals: Signals, settings: LearnedSettings,
        k: int, rate: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.law, self.budget, self.decoder = law, budget, decoder
        self.settings, self.k, self.rate = settings, k, rate
        self.samples = len(signals)
        self.register_buffer("signals", torch.from_numpy(signals.values), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """Rebuild a batch through masks of the law."""
        x = self.get_buffer("signals")[batch]
        sample = self.law.sample(min(self.settings.draws, len(x)), generator)
        rebuilt = self.decoder(x, self.budget.masks(self.law, sample))
        loss = reconstruction(rebuilt, self.decoder.pack(x, 2).flatten(1))
        parts = {"reconstruction": loss, "budget": self.budget.loss(self.law, sample)}
        return parts, partial(self.budget.update, self.law, sample)

    def groups(self) -> list[dict[str, Any]]:
        """Let the law move faster than the reconstructor, and without decay, which would pull it to a half."""
        law = {"params": list(self.law.parameters()), "lr": self.settings.law_rate, "weight_decay": 0.0}
        return [{"params": list(self.decoder.parameters()), "lr": self.rate}, law]

    def begin(self, progress: float) -> None:
        """Lower the temperature geometrically."""
        first, last = self.settings.temperature
        self.law.temperature = first * (last / first) ** progress

    def figures(self) -> dict[str, float]:
        """Expected L0, count and concentration of the law."""
        with torch.no_grad():
            sample = self.law.sample(1, torch.Generator().manual_seed(0))
        marginals = self.law.marginals()
        return {
            "expected_l0": float(sample.expected_l0),
            "count": float(marginals.sum()),
            "concentration": concentration_of(marginals, self.k),
            "temperature": self.law.temperature,
        }


class Learned(Selector):
    """Where to look and how to rebuild, learned together (Dona & Gallinari), then collapsed to K sites.

    Parameters
    ----------
    settings
        Those of `LearnedSettings`, by name.
    """

    name: ClassVar[str] = "learned"

    def __init__(self, **settings: Any) -> None:
        self._settings = parse(LearnedSettings, settings)

    @property
    def decides(self) -> bool:
        """The best of several joint samples is chosen on validation."""
        return self._settings.collapse == "best"

    def settings(self) -> dict[str, Any]:
        """Give all settings."""
        return self._settings.model_dump()

    def select(self, train: Signals, k: int, *, validation: Signals | None, run: Run) -> Selection:
        """Train the law, then collapse it."""
        task, chosen = self._task(train, k, run)
        identity = f"{train.fingerprint()} {k} {self._settings} {chosen} {run.seed}"
        name = f"learn {self._settings.law}"
        history = training.train(task, chosen, name=name, identity=identity, run=run)
        law = task.law.cpu()
        concentration = law.concentration(k)
        notes = {
            "concentration": concentration,
            "concentrated": concentration > _CONCENTRATED,
            "count": law.count(),
            "interior_modes": float(law.interior_modes().float().mean()),
        }
        judge = partial(RidgeScore, train, train if validation is None else validation, run)
        sites = self._collapse(law, k, judge, run)
        return Selection(_ranked(train, sites, run), history, notes)

    def _task(self, signals: Signals, k: int, run: Run) -> tuple[Joint, TrainSettings]:
        settings = self._settings
        generator = torch.Generator().manual_seed(run.seed_of("law"))
        law = self._law(signals, generator)
        if settings.warm_start != "none":
            start = _WARM[settings.warm_start]().select(signals, k, validation=None, run=run)
            law.warm_start(start.sites)
        kind = settings.decoder
        if kind == "auto":
            kind = "dense" if len(signals) >= _ENOUGH_FOR_A_NETWORK else "gaussian"
        with seeded(run.seed_of("decoder")):
            decoder = DECODERS[kind](signals, k)
        chosen = settings.train or _train_settings(len(signals))
        return Joint(law, self._budget(k), decoder, signals, settings, k, chosen.rate), chosen

    def _law(self, signals: Signals, generator: torch.Generator) -> Law:
        kind = LAWS[self._settings.law]
        latent = {"latent": self._settings.latent} if kind.correlated else {}
        observable = torch.from_numpy(signals.observable)
        return kind(observable, temperature=self._settings.temperature[0], generator=generator, **latent)

    def _budget(self, k: int) -> Budget:
        if self._settings.budget == "exact":
            return ExactK(k)
        return DualAscent(k, hard=True) if self._settings.budget == "dual" else Penalty(self._settings.penalty)

    def _collapse(self, law: Law, k: int, judge: Callable[[], RidgeScore], run: Run) -> NDArray[np.int64]:
        generator = torch.Generator().manual_seed(run.seed_of("collapse"))
        if self._settings.collapse == "marginal":
            return collapse.marginal(law, k)
        if self._settings.collapse == "frequency":
            return collapse.frequency(law, k, draws=4096, generator=generator)
        return collapse.best_of(law, k, candidates=self._settings.candidates, score=judge(), generator=generator)


def _ranked(train: Signals, sites: NDArray[np.int64], run: Run) -> NDArray[np.int64]:
    """Rank by use: each site is the one that adds most to those before it, whatever the law's marginals say."""
    among = np.zeros(train.grid.size, bool)
    among[sites] = True
    only = replace(train, observable=among.reshape(train.grid.shape))
    return Greedy().select(only, len(sites), validation=None, run=run).sites


def _train_settings(samples: int) -> TrainSettings:
    """Long enough for a law to make up its mind; no averaging, since the law is to be where it ended."""
    batch = int(min(256, max(16, samples // 2)))
    steps = int(min(4000, max(2000, 10 * samples // batch)))
    return TrainSettings(steps=steps, batch=batch, average=0.0)
