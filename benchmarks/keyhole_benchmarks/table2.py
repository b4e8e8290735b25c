"""Table 2 of the paper: how well digits are told apart from the chosen pixels alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import DataError
from keyhole.core.run import Run, digest
from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.target import Target
from keyhole.masks import MASK_DISTRIBUTIONS
from keyhole.metrics import target_scores
from keyhole.models.objectives import prediction
from keyhole.models.reconstructors.dcgan import DCGANClassifier
from keyhole.training.loop import Task, seeded, train
from keyhole.training.settings import TrainSettings
from keyhole_benchmarks import table1
from keyhole_benchmarks.data import Data, load
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.protocols import protocol_of
from keyhole_benchmarks.published import CLASSIFICATION
from keyhole_benchmarks.published import METHODS as PAPER
from keyhole_benchmarks.records import Case, Store
from keyhole_benchmarks.runner import Job, Outcome
from keyhole_benchmarks.weights import by_resulting_k

__all__ = ["KS", "METHODS", "jobs"]

KS = (20, 30, 50)
METHODS = (*PAPER, "qr")
_TRAININGS = 5
_CHUNK = 2048


def jobs(
    protocol: str, name: str, methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int], sites: Store
) -> Iterator[Job]:
    """Return one job for each mask of Table 1 on a data set.

    Parameters
    ----------
    protocol
        Name of the protocol.
    name
        Name of a data set with labels.
    methods
        Names of methods of Table 1.
    ks
        Numbers of sites; empty for those of the paper.
    seeds
        Seeds of the runs.
    sites
        Records of Table 1.

    Yields
    ------
    Job
        A job with one case.
    """
    scale = protocol_of(protocol, name)
    data, masks = load(name, scale.samples), _masks(sites, protocol, name)
    for k, seed, method in product(ks or KS, seeds, methods):
        if method in table1.CLASSICAL and seed != seeds[0]:
            continue
        if (method, k, seed) not in masks and scale.budget == "penalty" and method in MASK_DISTRIBUTIONS:
            continue  # no weight led to this K
        if (method, k, seed) not in masks:
            raise DataError(f"no sites of {method} at K = {k} in {sites.path}; run keyhole-bench table1 first")
        settings = {**scale.circumstances(), "sites": masks[method, k, seed], "train": scale.classifier(data.samples)}
        case = Case("table2", name, scale.name, method, "dcgan classifier", k, seed, settings)
        yield Job([case], data.split(), scale.precision, partial(_work, case, data))


def _masks(sites: Store, protocol: str, name: str) -> dict[tuple[str, int, int], list[int]]:
    lines = by_resulting_k(Lines(sites.lines()), {}).where(data=name, protocol=protocol)
    return {(one["method"], one["k"], one["seed"]): sorted(one["notes"]["sites"]) for one in lines}


def _work(case: Case, data: Data, run: Run) -> Iterator[Outcome]:
    sites = np.array(case.settings["sites"])
    settings = TrainSettings(**case.settings["train"])
    errors = [_error(data, sites, settings, run, attempt) for attempt in range(_TRAININGS)]
    least = _published(case)
    metrics = {"least_error": min(errors), "mean_error": float(np.mean(errors)), "trainings": float(_TRAININGS)}
    yield Outcome(metrics, len(sites), {"errors": errors}, least, comparable=least is not None)


def _published(case: Case) -> float | None:
    if case.method not in PAPER or case.data != "mnist" or case.k not in CLASSIFICATION:
        return None
    return CLASSIFICATION[case.k][PAPER.index(case.method)][0] / 100


def _error(data: Data, sites: NDArray[np.int64], settings: TrainSettings, run: Run, attempt: int) -> float:
    """Share of the test digits that one training takes for another."""
    labels, plain = datasets.labels(data.name), data.plain
    task = _Classify(plain, labels, sites, run.seed_of(f"classifier {attempt}"))
    identity = f"{digest(plain.development.values, sites)} {settings} {run.seed} {attempt}"
    train(task, settings, name=f"classifier {attempt}", identity=identity, run=run)
    scores = task.cpu().probabilities(data.test(plain))
    return target_scores(labels.take(plain.split.test), scores)["error"]


class _Classify(Task):
    """Tell classes from what the sites show of an image, by a DCGAN classifier on the observed grid."""

    def __init__(self, prepared: PreparedSamples, labels: Target, sites: NDArray[np.int64], seed: int) -> None:
        super().__init__()
        part = prepared.development
        height, width = part.sites.shape
        with seeded(seed):
            self.network: nn.Module = DCGANClassifier(part.channels, len(labels.classes), (height, width))
        self.samples = len(part)
        mask = torch.zeros(part.sites.size)
        mask[torch.from_numpy(sites)] = 1
        codes = torch.from_numpy(labels.take(prepared.split.development).values)
        images = torch.from_numpy(part.sites.to_grid(part.values, fill=0))
        tensors = {"mask": mask.reshape(part.sites.shape), "images": images, "codes": codes}
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        seen = self.get_buffer("images")[batch] * self.get_buffer("mask")
        return {"prediction": prediction(self.network(seen), self.get_buffer("codes")[batch], True)}, None

    @torch.inference_mode()
    def probabilities(self, samples: ScaledSamples) -> NDArray[np.float64]:
        """Probability of each class for each sample."""
        self.eval()
        images, mask = torch.from_numpy(samples.sites.to_grid(samples.values, fill=0)), self.get_buffer("mask")
        outputs = [self.network(images[start : start + _CHUNK] * mask) for start in range(0, len(images), _CHUNK)]
        return torch.softmax(torch.cat(outputs).double(), dim=1).numpy()


def prerequisites(
    protocol: str, name: str, methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int]
) -> Iterator[Job]:
    """Return the jobs of Table 1 that select the sites.

    Parameters
    ----------
    protocol
        Name of the protocol.
    name
        Name of a data set with labels.
    methods
        Names of methods of Table 1.
    ks
        Numbers of sites; empty for those of the paper.
    seeds
        Seeds of the runs.

    Returns
    -------
    iterator of Job
        Jobs of Table 1.
    """
    return table1.jobs(protocol, (name,), methods, ks or KS, seeds)
