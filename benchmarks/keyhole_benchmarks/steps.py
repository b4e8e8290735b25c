"""Learning rates of mask distributions and of the concrete autoencoder's selector layer: a grid, by validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from keyhole.core.run import Run
from keyhole.placement import SELECTORS
from keyhole_benchmarks.data import Data, load
from keyhole_benchmarks.protocols import Protocol, protocol_of
from keyhole_benchmarks.published import METHODS
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["METHODS", "STEPS", "jobs"]

_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# HNet-LN's parameters are a network's weights, which need smaller learning rates than logits; CAE's rows need larger.
STEPS = dict.fromkeys(METHODS, _STEPS) | {"hnet": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05), "cae": (*_STEPS, 0.5, 1.0)}


def jobs(
    protocol: str, data: str, methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int],
    steps: Sequence[float] = (),
) -> Iterator[Job]:  # fmt: skip
    """Return one job for each K, seed, method and learning rate; the test part is not used.

    Parameters
    ----------
    protocol
        Name of the protocol.
    data
        Name of the data set.
    methods
        Names of methods.
    ks
        Numbers of sites.
    seeds
        Seeds of the runs.
    steps
        Learning rates; empty for the grid of each method, `STEPS`.

    Yields
    ------
    Job
        A job with one case.
    """
    scale = protocol_of(protocol, data)
    loaded = load(data, scale.samples)
    tries = [(method, step) for method in methods for step in steps or STEPS[method]]
    for k, seed, (method, step) in product(ks, seeds, tries):
        settings = {**scale.circumstances(), "selector": _selector(scale, method, step, loaded)}
        case = Case("steps", data, scale.name, method, "own", k, seed, settings)
        yield Job([case], loaded.split(), scale.precision, partial(_work, case, loaded))


def _selector(scale: Protocol, method: str, step: float, data: Data) -> dict[str, Any]:
    samples = len(data.plain.train)
    if method == "cae":
        return scale.cae(data.cae_decoder, samples) | {"selector_learning_rate": step}
    return scale.distribution(method, samples) | {"mask_learning_rate": step}


def _work(case: Case, data: Data, run: Run) -> Iterator[Outcome]:
    train, validation = data.plain.train, data.plain.validation
    selector = SELECTORS.make(case.method, dict(case.settings["selector"]))
    selection = selector.select(train, case.k, validation=None, run=run)
    if selection.reconstruct is None:
        return
    error = np.square(selection.reconstruct(validation) - validation.targets).mean()
    metrics = {"validation_mse": float(error)}
    yield Outcome(metrics, int(selection.notes.get("distinct", case.k)), selection.notes)
