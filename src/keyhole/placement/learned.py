"""Learned masks: a mask distribution and a reconstructor or predictor, trained jointly."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.processes import Processes
from keyhole.core.run import Run
from keyhole.data.batches import Prefetched, StoredBatches
from keyhole.data.metric import NoMetric
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.masks import (
    MASK_DISTRIBUTIONS,
    Budget,
    CountBudget,
    DualAscent,
    ExactK,
    GraphLogitNormal,
    L0Penalty,
    MaskDistribution,
    MaskSample,
    collapse,
    concentration_of,
)
from keyhole.models.own_modules import LossLike, ModuleLike
from keyhole.placement.base import Selection, Selector, complete, with_fixed
from keyhole.placement.baselines.supervised import Relevance
from keyhole.placement.classical import QR, Greedy, rank_sites
from keyhole.placement.exchange import Exchange
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.kernel_objective import KernelObjective
from keyhole.placement.learned_objectives import MaskObjective, make_objective
from keyhole.placement.own_objectives import OwnParts
from keyhole.placement.scorer import Scorer
from keyhole.placement.settings import LearnedSettings
from keyhole.training import loop as training
from keyhole.training.loop import After, Task, seeded
from keyhole.training.settings import TrainSettings

__all__ = ["Learned"]

_WARM_STARTS: dict[str, type[Selector]] = {"greedy": Greedy, "qr": QR, "relevance": Relevance}
_CONCENTRATED = 0.95
_LEARNED_SHARE = 0.5  # of the time, where a local search follows
_SOFT_SPREAD = 0.02  # share of the count that soft masks spread over all sites, so that every site keeps a gradient


class JointTask(Task):
    """Mask distribution, budget and objective, trained on one loss.

    Each batch is observed through a few masks drawn from the distribution, each shared by several samples. The loss is
    that of the objective plus the term of the budget. With several processes, each draws its part of the masks and
    reads its part of the batch. What is counted over draws (the violation of the budget, the threshold that logits are
    shifted to, moments of logits) is counted over the draws of all of them, so that the averaged gradient and the
    updates are those of one process that drew the same masks.

    Parameters
    ----------
    distribution
        Mask distribution with learned parameters.
    budget
        Holds the number of open sites: exact K, dual ascent or L0 penalty.
    objective
        The loss, with the network behind the masks.
    samples
        Scaled training samples; read in batches where they stay in their file.
    settings
        Settings of the learned selector.
    k
        Number of sites.
    learning_rate
        Of the network; the mask distribution has its own.
    """

    seen: Tensor | None

    def __init__(
        self,
        distribution: MaskDistribution,
        budget: Budget,
        objective: MaskObjective,
        samples: ScaledSamples,
        settings: LearnedSettings,
        k: int,
        learning_rate: float,
    ) -> None:
        super().__init__()
        self.distribution, self.budget, self.objective = distribution, budget, objective
        self.settings, self.k, self.learning_rate = settings, k, learning_rate
        self.samples, self.first_count = len(samples), distribution.count()
        stored = None if samples.memory is None else StoredBatches(samples, samples.memory)
        self.source = None if stored is None else Prefetched(stored)
        if self.source is None:
            truth, seen = samples.known_targets, samples.observed_targets()
            self.register_buffer("values", torch.from_numpy(truth), persistent=False)
            self.register_buffer("seen", None if seen is truth else torch.from_numpy(seen), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], After]:
        """Return the losses of a batch observed through masks of the distribution."""
        n_masks = self.processes.whole(self.settings.n_masks) // self.processes.count
        sample = self.distribution.draw(min(n_masks, len(batch)), generator)
        x, seen = self._samples(batch)
        masks, penalty = self.budget(self.distribution, sample)
        parts = self.objective(x, seen, masks, batch, generator)
        return parts | {"budget": penalty}, partial(self._after, sample)

    def distribute(self, processes: Processes) -> None:
        """Count over the masks and samples of all processes in budget and objective."""
        super().distribute(processes)
        self.budget.processes = self.objective.processes = processes

    def prefetch(self, batches: list[Tensor]) -> None:
        """Read the next batches in the background where the samples are not in memory."""
        if self.source is not None:
            self.source.announce([batch.numpy() for batch in batches])

    def close(self) -> None:
        """End the thread that reads batches."""
        if self.source is not None:
            self.source.close()

    def order(self, generator: torch.Generator) -> Tensor:
        """Draw the order of the samples, by chunks of the file where they are not in memory."""
        return super().order(generator) if self.source is None else self.source.order(generator)

    def _samples(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples, and what sensors observe of them."""
        if self.source is not None:
            x = torch.from_numpy(self.source.fetch(batch.cpu().numpy())).to(batch.device)
            return x, x
        x = self.get_buffer("values").index_select(0, batch)
        return x, x if self.seen is None else self.seen.index_select(0, batch)

    def _after(self, sample: MaskSample) -> None:
        self.budget.update(self.distribution, sample)
        if self.settings.masks == "soft":
            everyone = replace(sample, logits=self.processes.gather(sample.logits))
            self.distribution.polarise(everyone, _SOFT_SPREAD * self.present_k() / self.distribution.n_sites)

    def present_k(self) -> int:
        """Return the K that the budget holds at present, or the final K where it holds none."""
        return self.budget.k if isinstance(self.budget, CountBudget) else self.k

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups: a higher learning rate for the mask distribution, and no weight decay."""
        latent, step = self.distribution.latent_weights(), self.settings.mask_learning_rate
        of_latent = {id(weight) for weight in latent}
        others = [parameter for parameter in self.distribution.parameters() if id(parameter) not in of_latent]
        distribution = [(others, step), (latent, step * self.settings.latent_learning_rate)]
        groups = [{"params": params, "lr": lr, "weight_decay": 0.0} for params, lr in distribution if params]
        return [{"params": list(self.objective.parameters()), "lr": self.learning_rate}, *groups]

    def begin(self, progress: float) -> None:
        """Anneal the temperature geometrically, and K where ``k_anneal`` is set."""
        first, last = self.settings.temperature
        self.distribution.temperature = first * (last / first) ** progress
        if self.settings.k_anneal and isinstance(self.budget, CountBudget):
            remaining = max(0.0, 1 - progress / self.settings.k_anneal)
            self.budget.k = round(self.k * (max(self.first_count, self.k) / self.k) ** remaining)

    def figures(self) -> dict[str, float]:
        """Return expected L0, count, concentration and temperature of the mask distribution."""
        marginals = self.distribution.marginals
        return {
            "expected_l0": float(self.distribution.expected_l0(torch.Generator().manual_seed(0)).detach()),
            "count": float(marginals.sum()),
            "concentration": concentration_of(marginals, self.k),
            "temperature": self.distribution.temperature,
        }


class Learned(Selector):
    """Learned masks: a mask distribution and a reconstructor or predictor, trained jointly, then collapsed to K sites.

    Samples are observed through random masks, and the mask distribution is trained by the gradient of the
    reconstruction loss (or the prediction loss of a target) under a budget on the number of open sites. The trained
    distribution is collapsed to K sites by its marginals, by the frequency of sites in draws, or to the best of several
    draws by validation error. The distributions and formulas are documented in `keyhole.masks`. Prefer it where
    reconstruction is far from linear or a target is to be predicted; `Exchange` is faster and usually as good for
    smooth fields.

    Parameters
    ----------
    decoder
        Name of a decoder, as in `LearnedSettings`; or a module of the user's own, or a class or function that makes one
        without arguments. It is given the masked grid ``(N, channels + 1, *grid)``, standardised, with the mask as the
        last channel (unless ``mask_channel=False``), and returns the field, ``(N, channels, *grid)`` or ``(N, channels
        * m)``. With a target it returns a logit for each class, or a number.
    loss
        ``loss(reconstruction, truth)``, both ``(N, channels, *grid)``, which returns a number or one for each sample; a
        function or a module. See `keyhole.models.own_modules.GridLoss` for what else it may ask for. With a target
        ``loss(outputs, target)``, where the target has the code of each class, or standardised numbers. None: the
        squared error, or the cross-entropy.
    train_loss
        Whether the parameters of a loss that is a module are trained too.
    settings
        Fields of `LearnedSettings`, by name.

    References
    ----------
    Dona & Gallinari (2021). Differentiable feature selection, a reparameterization approach. ECML PKDD.

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]
    >>> samples = kh.read(values.astype(np.float32)).as_scaled()
    >>> quick = {"steps": 20, "batch_size": 16, "ema_decay": 0.0}
    >>> learned = Learned(distribution="iln", train=quick)
    >>> sorted(learned.select(samples, 2, validation=None, run=Run()).sites.tolist())
    [1, 3]
    """

    name: ClassVar[str] = "learned"
    supervised: ClassVar[bool] = True
    settings_class: ClassVar[type[LearnedSettings]] = LearnedSettings
    options: LearnedSettings

    def __init__(
        self,
        *,
        decoder: str | ModuleLike = "auto",
        loss: LossLike | None = None,
        train_loss: bool = False,
        **settings: Any,
    ) -> None:
        is_own = not isinstance(decoder, str)
        super().__init__(**settings, **({} if is_own else {"decoder": decoder}))
        self.own = None
        if is_own or loss is not None:
            self.own = OwnParts(decoder if is_own else None, loss, train_loss)  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """Return all settings; of a decoder and a loss of the user's own their names."""
        return super().settings() | ({} if self.own is None else self.own.names())

    def clone(self) -> Self:
        """Return an unfitted object with the same settings, decoder and loss."""
        again = type(self)(**self.options.model_dump())
        again.own = self.own
        return again

    @property
    def any_size(self) -> bool:  # type: ignore[override]
        """Whether training needs nothing but batches of samples."""
        return self.options.objective == "squared" and self.options.collapse != "best"

    @property
    def requires_validation(self) -> bool:
        """Whether the best of several draws is chosen on validation samples (``collapse="best"``)."""
        return self.options.collapse == "best"

    def incompatibility(self, samples: Samples | ScaledSamples) -> str | None:
        """Convolutions need two dimensions and predict no target; the discriminator needs complete samples.

        Masks that are correlated along a graph need one, or positions. A decoder of the user's own must take the grid.
        """
        reason = None if self.own is None else self.own.refusal(samples, self.options)
        if reason is not None:
            return reason
        if self.options.decoder == "kernel":
            if self.options.budget == "penalty" or (self.options.budget == "dual" and self.options.masks == "soft"):
                return 'its kernel decoder needs masks of zeros and ones: budget="exact", or "dual" with masks="hard"'
            if self.options.objective == "gan":
                return "its kernel decoder has no adversarial objective"
        if self.options.warm_start == "relevance" and samples.target is None:
            return 'warm_start="relevance" selects for a target, and there is none'
        if self.options.distribution == GraphLogitNormal.name and isinstance(samples.sites.metric, NoMetric):
            return "its masks are correlated between neighbours, and these sites have neither a graph nor positions"
        if self.options.objective == "gan" and samples.missing is not None:
            return "its discriminator needs complete samples, and some values are missing"
        shape, convolves = samples.choices, self.options.objective == "gan" or self.options.decoder == "resnet"
        if convolves and len(shape) != 2:
            return f"convolutions need a grid of two axes, not of shape {shape}"
        if convolves and samples.target is not None:
            return "convolutions reconstruct the field, they predict no target"
        return None

    def refit(self, found: Selection, development: ScaledSamples, run: Run) -> Selection:
        """Keep the sites, which took a training to find; see `Selector.refit`."""
        return found

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Train the mask distribution and collapse it to ``k`` sites."""
        task, history = self.learn(train, k, run.share(_LEARNED_SHARE) if self.options.local_search else run)
        distribution = task.distribution
        concentration = distribution.concentration(k)
        notes = {
            "concentration": concentration,
            "concentrated": concentration > _CONCENTRATED,
            "count": distribution.count(),
            "interior_modes": float(distribution.interior_modes().float().mean()),
        }
        sites, reconstruct = self._collapse(distribution, train, k, validation, run), None
        if self.options.local_search:
            improved = self._improve(train, sites, run)
            notes |= {**improved.notes, "learned_sites": sites.tolist()}
            return replace(improved, history=history, notes=notes, distribution=distribution)
        if train.target is None:
            reconstruct = partial(task.objective.reconstruct, sites=sites) if task.objective.reconstructs else None
            sites = rank_sites(train, sites, run)
        return Selection(sites, history, notes, reconstruct, distribution)

    def _improve(self, train: ScaledSamples, sites: NDArray[np.int64], run: Run) -> Selection:
        """Improve sites by exchanges, for a linear reconstruction unless kernel ridge regression is better."""
        found = KernelExchange(n_restarts=self.options.n_restarts).improve(train, [sites], run)
        if train.target is None and not found.history:
            return Exchange().improve(train, sites, run)
        return found

    def learn(self, train: ScaledSamples, k: int, run: Run) -> tuple[JointTask, list[dict[str, float]]]:
        """Train the mask distribution and the network.

        Parameters
        ----------
        train
            Scaled samples.
        k
            Number of sites.
        run
            Seed, deadline, checkpoints and progress.

        Returns
        -------
        task : JointTask
            The trained task, on the CPU in evaluation mode.
        history : list of dict
            Training log.
        """
        options = self.options
        distribution = self._distribution(train, torch.Generator().manual_seed(run.seed_of("law")))
        start = self._start(train, k, run)
        if start is not None:
            distribution.warm_start(start)
        own = self.own
        with seeded(run.seed_of("decoder")):
            if options.decoder == "kernel":
                objective: MaskObjective = self._kernel_objective(train, k, start, run)
            else:
                objective = make_objective(train, k, options) if own is None else own.objective(train, k, options)
        chosen = options.train or _train_settings(len(train))
        budget = self._budget(k, objective.unit)
        task = JointTask(distribution, budget, objective, train, options, k, chosen.learning_rate)
        identity = f"{train.fingerprint()} {k} {options} {chosen} {run.seed}"
        identity += "" if own is None else f" {own.identity(objective)}"
        history = training.train(task, chosen, name=f"learn {options.distribution}", identity=identity, run=run)
        return task.cpu().eval(), history

    def _start(self, train: ScaledSamples, k: int, run: Run) -> NDArray[np.int64] | None:
        """Return the sites of the warm start; None for a cold one."""
        name = self.options.warm_start
        if name == "none" or (train.target is not None and name != "relevance"):
            return None
        return _WARM_STARTS[name]().select(train, k, validation=None, run=run).sites

    def _kernel_objective(
        self, train: ScaledSamples, k: int, start: NDArray[np.int64] | None, run: Run
    ) -> KernelObjective:
        """Kernel ridge behind the masks, with the hyperparameters that are best for the start."""
        if start is None:
            first = QR() if train.target is None else Relevance()
            start = first.select(train, k, validation=None, run=run).sites
        return KernelObjective(train, start, run)

    def _distribution(self, samples: ScaledSamples, generator: torch.Generator) -> MaskDistribution:
        kind = MASK_DISTRIBUTIONS[self.options.distribution]
        latent: dict[str, Any] = {"rank": self.options.rank} if kind.correlated else {}
        if kind is GraphLogitNormal:
            along = self.options.model_dump(include={"diffusion_time", "n_eigenvectors"})
            latent |= {"adjacency": samples.sites.metric.adjacency(), **along}
        return kind(samples.observable, temperature=self.options.temperature[0], generator=generator, **latent)

    def _budget(self, k: int, unit: float) -> Budget:
        if self.options.budget == "exact":
            return ExactK(k)
        if self.options.budget == "dual":
            return DualAscent(k, rate=0.01 * unit, stiffness=0.5 * unit, hard=self.options.masks == "hard")
        return L0Penalty(self.options.l0_weight)

    def _collapse(
        self, distribution: MaskDistribution, train: ScaledSamples, k: int, validation: ScaledSamples | None, run: Run
    ) -> NDArray[np.int64]:
        """Return the sites of the trained distribution, feasible but not yet ranked."""
        generator = torch.Generator().manual_seed(run.seed_of("collapse"))
        make_feasible = partial(complete, k=k, train=train)
        if self.options.collapse == "marginal":
            return make_feasible(distribution.top(distribution.n_sites).numpy())
        if self.options.collapse == "frequency":
            ranking = collapse.frequency(distribution, distribution.n_sites, draws=4096, generator=generator)
            return make_feasible(ranking.numpy())
        scorer = Scorer(train, train if validation is None else validation, run)
        n_candidates = self.options.n_candidates
        return collapse.best_of(
            distribution, k, candidates=n_candidates, score=lambda sites: scorer(sites.numpy()), generator=generator,
            make_feasible=lambda ranking: torch.from_numpy(make_feasible(ranking.numpy())),
        ).numpy()  # fmt: skip


def _train_settings(samples: int) -> TrainSettings:
    """Default training length; no EMA of weights, since the final distribution is what is collapsed."""
    batch = int(min(256, max(16, samples // 2)))
    steps = int(min(4000, max(2000, 10 * samples // batch)))
    return TrainSettings(steps=steps, batch_size=batch, ema_decay=0.0)


learned_iln = with_fixed(Learned, "iln", distribution="iln")
learned_vln = with_fixed(Learned, "vln", distribution="vln")
learned_hnet = with_fixed(Learned, "hnet", distribution="hnet")
learned_graph_vln = with_fixed(Learned, "graph_vln", distribution="graph_vln")
learned_sct = with_fixed(Learned, "sct", distribution="sct")
learned_simplex = with_fixed(Learned, "simplex", distribution="simplex")
learned_gan = with_fixed(Learned, "cgan", objective="gan")
