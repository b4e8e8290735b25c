"""The paper's own way to a number of sites: sweep the weight of the penalty and round what comes out to tens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from keyhole.core.run import Run
from keyhole.masks import collapse
from keyhole.placement.learned import JointTask, Learned
from keyhole_benchmarks.data import Data, load
from keyhole_benchmarks.protocols import protocol_of
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["WEIGHTS", "jobs"]

WEIGHTS = {
    "paper": tuple(round(0.01 + 0.03 * step, 2) for step in range(34)),
    "small": (0.01, 0.04, 0.1, 0.31, 1.0),
}
_ROUNDINGS = ("down", "up")


def jobs(
    protocol: str, data: str, methods: Sequence[str], weights: Sequence[float], seeds: Sequence[int]
) -> Iterator[Job]:
    """Return one job for each mask distribution, weight and seed; K results from the weight.

    Parameters
    ----------
    protocol
        Name of the protocol.
    data
        Name of the data set.
    methods
        Names of mask distributions.
    weights
        Weights of the expected L0; empty for those of the protocol, `WEIGHTS`.
    seeds
        Seeds of the runs.

    Yields
    ------
    Job
        A job with a case for each rounding of K.
    """
    scale = protocol_of(protocol, data)
    loaded = load(data, scale.samples)
    for seed in seeds:
        for method in methods:
            for weight in weights or WEIGHTS[protocol]:
                chosen = scale.distribution(method, loaded.samples) | {
                    "budget": "penalty",
                    "l0_weight": weight,
                    "k_anneal": 0.0,
                }
                settings = {**scale.circumstances(), "selector": chosen}
                cases = [
                    Case("weights", data, scale.name, method, f"own, K rounded {way}", 0, seed, settings)
                    for way in _ROUNDINGS
                ]
                yield Job(cases, loaded.split(), scale.precision, partial(_work, cases[0], loaded))


def _work(case: Case, data: Data, run: Run) -> Iterator[Outcome]:
    selector = Learned(distribution=case.method, **case.settings["selector"])
    task, _ = selector.learn(data.plain.development, 1, run)
    for ranking in collapse.rounded(task.distribution):
        sites = ranking.numpy()
        reconstructed = task.objective.reconstruct(data.test(data.plain), sites)
        yield Outcome(data.score(data.plain, reconstructed), len(sites), _notes(task, len(sites)))


def _notes(task: JointTask, k: int) -> dict[str, float]:
    distribution = task.distribution
    return {
        "expected_l0": task.figures()["expected_l0"],
        "count": distribution.count(),
        "concentration": distribution.concentration(k),
        "interior_modes": float(distribution.interior_modes().float().mean()),
    }
