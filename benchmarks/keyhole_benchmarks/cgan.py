"""The paper's extension: sites and a generator trained as a conditional GAN, beside squared error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from keyhole.core.run import Run
from keyhole.metrics import sharpness
from keyhole.placement.learned import Learned
from keyhole_benchmarks.data import Data, load
from keyhole_benchmarks.mask_arrays import mask_arrays
from keyhole_benchmarks.protocols import Protocol, paper_ks, protocol_of
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["KS", "METHODS", "jobs"]

KS = {"mnist": (20,), "celeba": (200,)}
METHODS = ("cgan", "vln")  # the same distribution, once against a discriminator, once by squared error
_SHOWN = 8
_RATE = 5e-4


def jobs(
    protocol: str, data: Sequence[str], methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int]
) -> Iterator[Job]:
    """Return one job for each data set, objective and seed.

    Parameters
    ----------
    protocol
        Name of the protocol.
    data
        Names of data sets.
    methods
        Objectives: ``cgan`` or ``vln``, the same distribution with squared error.
    ks
        Numbers of sites; empty for those of the paper.
    seeds
        Seeds of the runs.

    Yields
    ------
    Job
        A job with one case.
    """
    for name in data:
        scale = protocol_of(protocol, name)
        loaded = load(name, scale.samples)
        for seed in seeds:
            for k in ks or paper_ks(name, KS):
                for method in methods:
                    settings = {**scale.circumstances(), "selector": _selector(scale, method, loaded)}
                    case = Case("cgan", name, scale.name, method, "own", k, seed, settings)
                    yield Job([case], loaded.split(), scale.precision, partial(_work, case, loaded))


def _selector(scale: Protocol, method: str, data: Data) -> dict[str, Any]:
    """Settings of VLN as in Table 1, but for a smaller step, the same for both objectives: games need small ones."""
    chosen = scale.distribution("vln", data.samples)
    objective = "gan" if method == "cgan" else "squared"
    chosen |= {"budget": "dual", "k_anneal": scale.fall, "polarise": True}  # no weight is known for this objective
    return chosen | {"objective": objective, "train": chosen["train"] | {"learning_rate": min(_RATE, scale.rate)}}


def _work(case: Case, data: Data, run: Run) -> Iterator[Outcome]:
    selection = Learned(**case.settings["selector"]).select(data.plain.development, case.k, validation=None, run=run)
    test = data.test(data.plain)
    if selection.reconstruct is None or selection.distribution is None:
        return
    reconstructed, domain = selection.reconstruct(test), data.domain
    truth, made = (domain.to_grid(values, fill=0) for values in (test.targets, reconstructed))
    metrics = data.score(data.plain, reconstructed) | {"sharpness": sharpness(truth, made)}
    sites = domain.index[selection.sites]
    arrays = {"truth": truth[:_SHOWN], "reconstructed": made[:_SHOWN], "sites": sites}
    yield Outcome(
        metrics, case.k, selection.notes | {"sites": np.sort(sites).tolist()},
        arrays=arrays | mask_arrays(selection.distribution, domain),
    )  # fmt: skip
