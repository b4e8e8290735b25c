"""Three worked examples: sites learned through a decoder and a loss of one's own, beside classical sites.

The same untrained decoder is then trained on fixed sites, with the same loss, steps and samples whatever selected them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.supervised_training import CHUNK, FixedBatches, SupervisedTask, train_supervised
from keyhole.placement import SELECTORS, Selection, Selector
from keyhole.placement.learned import Learned
from keyhole.training.loop import seeded
from keyhole.training.settings import TrainSettings
from keyhole_benchmarks.example_tasks import EXAMPLES, Example
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["EXAMPLES", "LEARNED", "METHODS", "fit", "jobs", "pretrain"]

# Masks that start from nothing, and at the sites of a classical selector; and the latter's sites after a local search.
# The decoder has been trained on random masks before.
LEARNED = ("cold", "warm", "local_search")
METHODS = tuple(dict.fromkeys(name for example in EXAMPLES.values() for name in example.methods))
_SECONDS = 60.0  # for a kernel exchange, which has no end of its own soon; half of it where masks are learned before
_REFIT = {"steps": 400, "batch_size": 64, "learning_rate": 3e-3, "ema_decay": 0.0, "validation_steps": 5}
_PRETRAINING = {"steps": 600, "batch_size": 64, "learning_rate": 3e-3, "ema_decay": 0.0, "validation_steps": 1}
_LEARNING = {"steps": 600, "batch_size": 64, "learning_rate": 1e-3, "ema_decay": 0.0}
# Chosen by the validation loss of a further seed.
_MASKS = {
    "n_masks": 64, "latent_learning_rate": 1 / 16, "temperature": (0.5, 0.1), "n_restarts": 0, "train": _LEARNING,
}  # fmt: skip
_OF_FIELD = {"warm_start": "greedy", "mask_learning_rate": 0.1}
_OF_CLASS = {"warm_start": "relevance", "mask_learning_rate": 0.2}
_SELECTORS: dict[str, dict[str, Any]] = {"forest": {"n_trees": 50}, "kernel_exchange": {"n_restarts": 0}}


def jobs(names: Sequence[str], methods: Sequence[str], seeds: Sequence[int], steps: float = 1.0) -> Iterator[Job]:
    """Return one job for each seed, example and selector; sites before and after the local search share one.

    Parameters
    ----------
    names
        Keys of `EXAMPLES`.
    methods
        Names in `METHODS`; an example leaves out those that do not suit it.
    seeds
        Seeds of the training samples, of the runs and of the decoders.
    steps
        Factor of the number of steps of all trainings.

    Yields
    ------
    Job
        A job with one case, or two.
    """
    for seed, name in product(seeds, names):
        example = EXAMPLES[name]
        for method in (one for one in example.methods if one in methods and one != "local_search"):
            settings = _settings(method, example, steps)
            both = (method, "local_search") if method == "warm" and "local_search" in methods else (method,)
            cases = [Case("examples", example.data, name, one, "own", example.k, seed, settings) for one in both]
            yield Job(cases, _prepared(name, seed).split.sizes(), "32-true", partial(_work, cases))


def _settings(method: str, example: Example, steps: float) -> dict[str, Any]:
    def scaled(train: Mapping[str, Any]) -> dict[str, Any]:
        return {**train, "steps": max(1, round(steps * train["steps"]))}

    found: dict[str, Any] = {"train": scaled(_REFIT)}
    if method in LEARNED:
        kind = _OF_CLASS if "relevance" in example.methods else _OF_FIELD
        start = {"warm_start": "none"} if method == "cold" else {}
        found["selector"] = {**_MASKS, **kind, **start, "train": scaled(_LEARNING)}
        found["pretraining"] = scaled(_PRETRAINING)
    elif method in _SELECTORS:
        found["selector"] = _SELECTORS[method]
    return found


def _work(cases: Sequence[Case], run: Run) -> Iterator[Outcome]:
    """Select sites on the training part, and train a new decoder on them."""
    case = cases[0]
    example, parts = EXAMPLES[case.protocol], _prepared(case.protocol, case.seed)
    found = _select(case, example, parts, run, local_search=len(cases) > 1)
    for one, sites in zip(cases, _sets(found), strict=True):
        metrics, validation = fit(example, parts, sites, one.settings["train"], run, stage=f"refit {one.method}")
        place = parts.train.sites.index[sites].tolist()
        kept: dict[str, Any] = {
            name: found.notes[name] for name in ("concentration", "exchanges") if name in found.notes
        }
        yield Outcome(metrics, len(set(place)), {"validation": validation, "sites": place, **kept})


def _select(case: Case, example: Example, parts: PreparedSamples, run: Run, *, local_search: bool) -> Selection:
    given = case.settings.get("selector", {})
    selector: Selector
    if case.method not in LEARNED:
        selector = SELECTORS.make(case.method, given)
    else:
        decoder = pretrain(example, parts, case.k, case.settings["pretraining"], run)
        selector = Learned(decoder=decoder, loss=example.loss(parts), local_search=local_search, **given)
    if local_search or case.method == "kernel_exchange":
        run = replace(run, deadline=time.monotonic() + _SECONDS)
    return selector.select(parts.train, case.k, validation=None, run=run)


class _RandomMasks(nn.Module):
    """Batches of samples, each observed at K sites drawn uniformly."""

    def __init__(self, samples: ScaledSamples, k: int) -> None:
        super().__init__()
        self.samples, self.k = len(samples), k
        whole, truth = _pairs(samples, np.arange(len(samples.sites)))
        self.register_buffer("whole", whole, persistent=False)
        self.register_buffer("truth", truth, persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        whole = self.get_buffer("whole")[batch]
        order = torch.rand(len(batch), whole[0, 0].numel(), generator=generator)
        mask = (
            torch.zeros_like(order).scatter(1, order.topk(self.k).indices, 1.0).reshape(len(batch), 1, *whole.shape[2:])
        )
        return whole * mask, self.get_buffer("truth")[batch]


def pretrain(example: Example, parts: PreparedSamples, k: int, settings: Mapping[str, Any], run: Run) -> nn.Module:
    """Train a new decoder on random masks, so that the gradient of a mask says from the start what a site is worth.

    Parameters
    ----------
    example
        The example.
    parts
        Its data; the training part is used.
    k
        Number of sites of each mask.
    settings
        `TrainSettings` by name.
    run
        Its seed is that of the decoder's first weights, of the batches and of the masks.

    Returns
    -------
    Module
    """
    model, loss = _new(example, run), example.loss(parts)
    task = SupervisedTask(model, _RandomMasks(parts.train, k), None, lambda *both: loss(*both).mean())
    train_supervised(task, repr(model), TrainSettings(**settings), stage="pretraining", run=run)
    return model


def _new(example: Example, run: Run) -> nn.Module:
    with seeded(run.seed_of("decoder")):
        return example.decoder()


def _sets(found: Selection) -> list[NDArray[np.int64]]:
    """Return the learned sites, and those after the local search; or the only ones."""
    before = found.notes.get("learned_sites")
    return [found.sites] if before is None else [np.array(before), found.sites]


def fit(
    example: Example, parts: PreparedSamples, sites: NDArray[np.int64], settings: Mapping[str, Any], run: Run,
    *, stage: str = "refit",
) -> tuple[dict[str, float], float]:  # fmt: skip
    """Train a new decoder on fixed sites.

    Parameters
    ----------
    example
        The example.
    parts
        Its data; the weights that are best on the validation part are kept.
    sites
        Numbers of the sites.
    settings
        `TrainSettings` by name.
    run
        Its seed is that of the decoder's first weights and of the batches.
    stage
        Name of the training, for its checkpoint.

    Returns
    -------
    metrics : dict
        Loss and other errors on the test part.
    validation : float
        Smallest loss on the validation part.
    """
    model, loss = _new(example, run), example.loss(parts)
    train, validation, test = (
        FixedBatches(*_pairs(one, sites)) for one in (parts.train, parts.validation, parts.choosing.apply(parts.test))
    )
    task = SupervisedTask(model, train, validation, lambda *both: loss(*both).mean())
    history = train_supervised(task, repr(model), TrainSettings(**settings), stage=stage, run=run)
    with torch.no_grad():
        every = torch.arange(test.samples)
        outputs = torch.cat([model(test(chunk)[0]) for chunk in torch.split(every, CHUNK)])
    truth = test(every)[1]
    errors = {"loss": loss, **example.parts_of_loss(parts)}
    metrics = {name: float(one(outputs, truth).mean()) for name, one in errors.items()}
    return metrics, min(row["validation"] for row in history)


def _pairs(samples: ScaledSamples, sites: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return the observed grids with their masks, and what the decoder is to return."""
    grid = (len(samples), samples.channels, *samples.sites.shape)  # every site of the grid is valid
    values, mask = samples.values, np.zeros(len(samples.sites), np.float32)
    mask[sites] = 1
    masks = np.broadcast_to(mask, (len(samples), 1, len(mask)))
    observed = np.concatenate([values * mask, masks], axis=1).reshape(grid[0], -1, *grid[2:])
    truth = values.reshape(grid) if samples.target is None else samples.target.values
    return torch.from_numpy(observed), torch.from_numpy(truth)


@lru_cache(maxsize=1)
def _prepared(name: str, seed: int) -> PreparedSamples:
    return EXAMPLES[name].prepare(seed)
