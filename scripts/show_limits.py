"""What is left to gain on a field, if what rebuilds is linear: how docs/results.md tells a goal that is out of reach.

``python scripts/show_limits.py ipsl`` prints, for each K, the fraction of variance left on the test part by sites and
kriging from all other samples, and by sites that were chosen on the test part itself and kriging that was fitted to
nine tenths of it, on the other tenth, in turn. Where the second is no less, more of the same data would not help: what
is left is beyond any linear map of so many readings. Nothing is chosen by these figures.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.reconstructors import OptimalInterpolation
from keyhole.placement.exchange import Exchange
from keyhole_benchmarks.quality import GOALS, load_prepared

TENTHS = 10


def sites_of(part: ScaledSamples, k: int) -> NDArray[np.int64]:
    """Sites by exchanges."""
    return Exchange().select(part, k, validation=None, run=Run()).sites


def left(taught: ScaledSamples, judged: ScaledSamples, sites: NDArray[np.int64]) -> tuple[float, float]:
    """Squared error on one part of kriging fitted to another, and the variance there."""
    fitted = OptimalInterpolation().fit(taught, sites, validation=taught, run=Run())
    reconstructed = fitted.reconstruct(judged.readings(sites), judged.covariates)
    return float(np.square(judged.targets - reconstructed).sum()), float(np.square(judged.targets).sum())


def show(name: str) -> None:
    """Print a line for each K."""
    prepared = load_prepared(name)
    others, test = prepared.development, prepared.scaling.apply(prepared.test)
    tenth = np.arange(len(test)) * TENTHS // len(test)
    for k in GOALS[name].ks:
        error, energy = left(others, test, sites_of(others, k))
        own = sites_of(test, k)
        parts = [
            left(test.take(np.flatnonzero(tenth != one)), test.take(np.flatnonzero(tenth == one)), own)
            for one in range(TENTHS)
        ]
        errors, energies = np.sum(parts, axis=0)
        print(f"{name} K = {k}: {error / energy:.4f} from other samples, {errors / energies:.4f} from test itself")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["ipsl", "sst", "oisst", "ncep"])
    show(parser.parse_args().data)
