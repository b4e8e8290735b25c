"""The data of a benchmark, cut down to a protocol's size and split once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import datasets, metrics
from keyhole.preparation import Prepared, prepare, prepare_with
from keyhole.scaling import Scaling
from keyhole.signals import Signals
from keyhole.split import Split, given

__all__ = ["Data", "load"]


@dataclass(frozen=True, eq=False)
class Data:
    """One data set, prepared twice: ``plain`` as the paper feeds its networks, ``scaled`` as Keyhole does.

    Plain images keep their values in [0, 1]; plain fields are anomalies from the climatology, as they are scaled.
    """

    name: str
    plain: Prepared
    scaled: Prepared

    @property
    def samples(self) -> int:
        """How many samples choose sites: all but test."""
        return len(self.plain.development)

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid's."""
        return self.plain.signals.grid.shape

    @property
    def cae_decoder(self) -> str:
        """Decoder of the concrete autoencoder: dense for digits, DCGAN for the others, as in the paper."""
        return "dense" if self.name == "mnist" else "dcgan"

    def split(self) -> dict[str, Any]:
        """Sizes of the parts, for the record."""
        return self.plain.split.sizes()

    def score(self, prepared: Prepared, rebuilt: NDArray[np.float32]) -> dict[str, float]:
        """Errors on test of what was rebuilt from it, still scaled as ``prepared`` is."""
        test = prepared.test
        whole = prepared.scaling.undo(rebuilt, test.time)
        return metrics.evaluate(test.values, whole, self.scaled.scaling.expected(test), test.grid)

    def test(self, prepared: Prepared) -> Signals:
        """Give the test part, scaled as ``prepared`` is."""
        return prepared.scaling.apply(prepared.test)


@lru_cache(maxsize=2)
def load(name: str, samples: int | None) -> Data:
    """Load a data set with at most ``samples`` to train and validate on, drawn once and for all."""
    signals = datasets.load(name).with_context().weighted(None)  # nothing but the readings, all cells alike
    split = prepare(signals, _fewer(signals, samples), seed=0).split
    scaled = _prepare(signals, split, Scaling.fit(signals.take(split.development)))
    return Data(name, _plain(scaled), scaled)


def _prepare(signals: Signals, split: Split, scaling: Scaling) -> Prepared:
    """Scale all parts alike: networks are trained on one part or all but test, and judged on test as they are."""
    return prepare_with(signals, split, scaling, scaling)


def _fewer(signals: Signals, samples: int | None) -> Split | None:
    if signals.split is None or samples is None or len(signals.split.development) <= samples:
        return signals.split
    chosen = np.random.default_rng(0).choice(signals.split.development, samples, replace=False)
    return given(chosen, signals.split.test)


def _plain(scaled: Prepared) -> Prepared:
    """Leave images as they are; a field's anomalies already are what the paper feeds."""
    signals = scaled.signals
    if signals.cycle is not None:
        return scaled
    nothing = Scaling(np.zeros_like(scaled.scaling.baseline), np.ones(signals.channels))
    return _prepare(signals, scaled.split, nothing)
