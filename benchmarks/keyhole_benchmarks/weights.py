"""The paper's own way to a number of sites: sweep the weight of the penalty and round what comes out to tens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from keyhole.core.run import Run
from keyhole.masks import collapse
from keyhole.placement import Selection
from keyhole.placement.learned import JointTask, Learned
from keyhole_benchmarks.data import Data, load
from keyhole_benchmarks.lattice import parity_share
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.mask_arrays import selection_arrays
from keyhole_benchmarks.protocols import Protocol, protocol_of
from keyhole_benchmarks.published import published_mse
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["OWN", "Refit", "Sweep", "by_resulting_k", "jobs"]

OWN = "own"  # the network that was trained with the sites, not refitted
_ROUNDINGS = ("down", "up")
_ROUNDED = ", K rounded "  # behind the reconstructor's name, followed by the rounding

# Name, settings, and the errors of a network that is fitted to the sites afterwards.
Refit = tuple[str, Mapping[str, Any], Callable[[Selection, Run], dict[str, float]]]


@dataclass(frozen=True)
class Sweep:
    """Mask distributions trained with a penalty on the expected L0, for each weight of a grid.

    Parameters
    ----------
    bench
        Name of the benchmark that the cases belong to.
    protocol
        The protocol.
    data
        The data set.
    weights
        Weights of the expected L0; empty for those of the protocol.
    """

    bench: str
    protocol: Protocol
    data: Data
    weights: Sequence[float] = ()

    def jobs(self, methods: Sequence[str], seeds: Sequence[int], *refits: Refit) -> Iterator[Job]:
        """Return one job for each seed, mask distribution and weight; K results from the weight.

        Parameters
        ----------
        methods
            Names of mask distributions.
        seeds
            Seeds of the runs.
        refits
            Networks that are fitted to the sites, beside that which is trained with them.

        Yields
        ------
        Job
            A job with a case for each rounding of K and each network.
        """
        for seed, method, weight in product(seeds, methods, self.weights or self.protocol.weights):
            cases = [
                Case(
                    self.bench, self.data.name, self.protocol.name, method, name + _ROUNDED + way, 0, seed,
                    self._settings(method, weight) | ({"reconstructor": dict(settings)} if settings else {}),
                )
                for way in _ROUNDINGS
                for name, settings in ((OWN, {}), *((name, settings) for name, settings, _ in refits))
            ]  # fmt: skip
            work = partial(self._work, cases[0], refits)
            yield Job(cases, self.data.split(), self.protocol.precision, work)

    def _settings(self, method: str, weight: float) -> dict[str, Any]:
        chosen = self.protocol.distribution(method, self.data.samples)
        chosen |= {"budget": "penalty", "l0_weight": weight, "k_anneal": 0.0}
        return {**self.protocol.circumstances(), "selector": chosen}

    def _work(self, case: Case, refits: Sequence[Refit], run: Run) -> Iterator[Outcome]:
        data, domain = self.data, self.data.domain
        selector = Learned(distribution=case.method, **case.settings["selector"])
        task, _ = selector.learn(data.plain.development, 1, run)
        for repeat, ranking in enumerate(collapse.rounded(task.distribution)):
            sites = ranking.numpy()
            selection = Selection(sites, [], {}, partial(task.objective.reconstruct, sites=sites), task.distribution)
            positions = domain.index[sites].tolist()
            notes = _notes(task, len(sites)) | {"sites": positions}
            notes["parity_share"] = parity_share(positions, domain.shape)
            published = published_mse(data.name, len(sites), case.method)
            metrics = data.score(data.plain, task.objective.reconstruct(data.test(data.plain), sites))
            yield Outcome(
                metrics, len(sites), notes, published, comparable=published is not None and data.name == "mnist",
                arrays=selection_arrays(data, selection),
            )  # fmt: skip
            for _, _, fit in refits:
                yield Outcome(fit(selection, replace(run, repeat=repeat)), len(sites), notes)


def jobs(
    protocol: str, data: str, methods: Sequence[str], weights: Sequence[float], seeds: Sequence[int],
    *, polarise: bool = True,
) -> Iterable[Job]:  # fmt: skip
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
        Weights of the expected L0; empty for those of the protocol.
    seeds
        Seeds of the runs.
    polarise
        Whether masks are kept from interior modes and marginals from 0 and 1, if the protocol does so.

    Returns
    -------
    iterable of Job
        Jobs with a case for each rounding of K.
    """
    scale = protocol_of(protocol, data)
    scale = replace(scale, polarise=scale.polarise and polarise)
    return Sweep("weights", scale, load(data, scale.samples), weights).jobs(methods, seeds)


def by_resulting_k(lines: Lines, ks: Mapping[str, Sequence[int]]) -> Lines:
    """Give lines whose K resulted from a weight in the form of those whose K was asked for.

    Of several weights with the same K, that counts whose count is nearest to K: the test error chooses nothing.

    Parameters
    ----------
    lines
        Records of Table 1.
    ks
        K of the table by data set; where it has the data set, lines with another resulting K are left out.

    Returns
    -------
    Lines
        The records.
    """
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    asked = [one for one in lines if _ROUNDED not in one["reconstructor"]]
    for one in [one for one in lines if _ROUNDED in one["reconstructor"]]:
        k, name = one["k_distinct"], one["reconstructor"].split(_ROUNDED)[0]
        if k in ks.get(one["data"], (k,)):
            place = (one["data"], one["protocol"], one["method"], name, k, one["seed"])
            rival = found.get(place)
            if rival is None or abs(one["notes"]["count"] - k) < abs(rival["notes"]["count"] - k):
                found[place] = {**one, "k": k, "reconstructor": name}
    return Lines([*asked, *found.values()])


def _notes(task: JointTask, k: int) -> dict[str, Any]:
    distribution = task.distribution
    return {
        "expected_l0": task.figures()["expected_l0"],
        "count": distribution.count(),
        "concentration": distribution.concentration(k),
        "interior_modes": float(distribution.interior_modes().float().mean()),
    }
