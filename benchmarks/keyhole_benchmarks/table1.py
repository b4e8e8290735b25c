"""Table 1 of the paper: reconstruction error of its five systems, beside classical sites with the same networks.

A reference has no sites: K free linear measurements, decoded as the refit decodes K sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.masks import MASK_DISTRIBUTIONS
from keyhole.models.reconstructors import Reconstructor, Residual
from keyhole.models.reconstructors.neural import ResNetReconstructor
from keyhole.models.settings import DenseSettings
from keyhole.models.supervised_training import train_settings_for
from keyhole.placement import SELECTORS, Selection
from keyhole.workflow.arguments import check_k
from keyhole_benchmarks.data import Data, load
from keyhole_benchmarks.lattice import parity_share
from keyhole_benchmarks.linear_measurements import fit_linear_measurements
from keyhole_benchmarks.mask_arrays import selection_arrays
from keyhole_benchmarks.protocols import Protocol, paper_ks, protocol_of
from keyhole_benchmarks.published import METHODS as PAPER
from keyhole_benchmarks.published import published_mse
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome
from keyhole_benchmarks.weights import OWN, Refit, Sweep

__all__ = ["CLASSICAL", "KS", "METHODS", "REFERENCE", "jobs", "refit_settings"]

KS = {"mnist": (20, 30, 50), "ipsl": (20, 50, 100), "ncep": (100, 200, 300), "celeba": (100, 200, 300)}
CLASSICAL = ("qr", "greedy")
METHODS = (*PAPER, *CLASSICAL)
REFERENCE = "linear_measurements"
RESNET = "resnet"  # the same network, trained on classical sites
REFIT = "residual"


@dataclass(frozen=True)
class _Row:
    """One method at one K with one seed."""

    data: str
    protocol: Protocol
    method: str
    k: int
    seed: int

    @property
    def reconstructors(self) -> tuple[str, ...]:
        """The paper's systems are scored by their own network, then by our refit; classical sites by both networks."""
        if self.method == REFERENCE:
            return (REFIT,)
        return (RESNET, REFIT) if self.method in CLASSICAL else (OWN, REFIT)

    def cases(self, data: Data) -> list[Case]:
        shared = {**self.protocol.circumstances(), "selector": self.selector(data)}
        return [
            Case(
                "table1", self.data, self.protocol.name, self.method, name, self.k, self.seed,
                {**shared, "reconstructor": self.reconstructor(name, data)},
            )
            for name in self.reconstructors
        ]  # fmt: skip

    def reconstructor(self, name: str, data: Data) -> dict[str, Any]:
        """Settings of a network on fixed sites: the paper's, or those that our refit has for so many samples."""
        if name == RESNET:
            return self.protocol.resnet(data.samples)
        return refit_settings(len(data.scaled.train)) if name == REFIT else {}

    def selector(self, data: Data) -> dict[str, Any]:
        """Settings of the method under the protocol."""
        if self.method in MASK_DISTRIBUTIONS:
            return self.protocol.distribution(self.method, data.samples)
        if self.method == "cae":
            return self.protocol.cae(data.cae_decoder, data.samples)
        return {}


def jobs(
    protocol: str, data: Sequence[str], methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int],
    weights: Sequence[float] = (),
) -> Iterator[Job]:  # fmt: skip
    """Return one job for each data set, K, seed and method.

    One K follows the other, so that a benchmark that is stopped has all seeds of some K. Classical sites, which are not
    random, are selected once. Under a protocol with the paper's penalty, mask distributions are trained once for each
    weight, whatever K, and come last.

    Parameters
    ----------
    protocol
        Name of the protocol.
    data
        Names of data sets.
    methods
        Names of methods.
    ks
        Numbers of sites; empty for those of the paper.
    seeds
        Seeds of the runs.
    weights
        Weights of the expected L0, for a protocol with the paper's penalty; empty for its grid.

    Yields
    ------
    Job
        A job with one case for each network.
    """
    for name in data:
        scale = protocol_of(protocol, name)
        loaded = load(name, scale.samples)
        if weights and scale.budget != "penalty":
            raise SettingsError(f"protocol {protocol!r} is asked for K and takes no weights; leave --weights out")
        swept = [one for one in methods if one in MASK_DISTRIBUTIONS and scale.budget == "penalty"]
        for k, seed, method in product(ks or paper_ks(name, KS), seeds, [one for one in methods if one not in swept]):
            row = _Row(name, scale, method, k, seed)
            if method not in CLASSICAL or seed == seeds[0]:
                work = _measure if method == REFERENCE else _work
                yield Job(row.cases(loaded), loaded.split(), scale.precision, partial(work, row, loaded))
        yield from Sweep("table1", scale, loaded, weights).jobs(swept, seeds, _refit(loaded))


def refit_settings(samples: int) -> dict[str, Any]:
    """Return the default settings of ridge + dense network.

    Parameters
    ----------
    samples
        Number of training samples.

    Returns
    -------
    dict
        Settings by name.
    """
    train = train_settings_for(samples)
    return {"inner": "dense", **DenseSettings(train=train).for_samples(samples).model_dump()}


def _work(row: _Row, data: Data, run: Run) -> Iterator[Outcome]:
    prepared = data.scaled if row.method in CLASSICAL else data.plain
    check_k(row.k, prepared.samples)
    selector = SELECTORS.make(row.method, row.selector(data))
    selection = selector.select(prepared.development, row.k, validation=None, run=run)
    published, positions = published_mse(row.data, row.k, row.method), data.domain.index[selection.sites].tolist()
    for name in row.reconstructors:
        metrics = _score(name, row, data, selection, run)
        first = name != REFIT
        yield Outcome(
            metrics,
            int(selection.notes.get("distinct", row.k)) if first else len(set(selection.sites.tolist())),
            selection.notes | {"sites": positions, "parity_share": parity_share(positions, data.domain.shape)},
            published if first else None,
            comparable=first and published is not None and row.data == "mnist",
            arrays=selection_arrays(data, selection) if first else {},
        )


def _refit(data: Data) -> Refit:
    """Our refit, for sites whose number resulted from a weight."""
    settings = refit_settings(len(data.scaled.train))
    return REFIT, settings, lambda selection, run: _fixed(REFIT, settings, data, selection.sites, run)


def _measure(row: _Row, data: Data, run: Run) -> Iterator[Outcome]:
    """The reference: measurements are trained with a network of the refit's size, for as many steps."""
    prepared, given = data.scaled, refit_settings(len(data.scaled.train))
    settings = DenseSettings(**{name: value for name, value in given.items() if name != "inner"})
    model, history = fit_linear_measurements(prepared.train, prepared.validation, row.k, settings, run)
    errors = [one["validation"] for one in history]
    notes = {"components_validation": errors[0], "best_validation": min(errors)}
    yield Outcome(data.score(prepared, model.reconstruct(data.test(prepared))), row.k, notes)


def _score(name: str, row: _Row, data: Data, selection: Selection, run: Run) -> dict[str, float]:
    """Errors of one network, that which was trained with the sites or one on fixed sites."""
    if name == OWN and selection.reconstruct is not None:
        return data.score(data.plain, selection.reconstruct(data.test(data.plain)))
    return _fixed(name, row.reconstructor(name, data), data, selection.sites, run)


def _fixed(name: str, settings: Mapping[str, Any], data: Data, sites: NDArray[np.int64], run: Run) -> dict[str, float]:
    """Errors of a network on fixed sites: the ResNet is trained as with masks, without validation."""
    if name == RESNET:
        prepared = data.plain
        network = ResNetReconstructor(**settings)
        fitted: Reconstructor = network.fit(prepared.development, sites, validation=None, run=run)
    else:
        prepared = data.scaled
        fitted = Residual(**settings).fit(prepared.train, sites, validation=prepared.validation, run=run)
    return data.score(prepared, fitted.reconstruct(data.test(prepared).readings(sites)))
