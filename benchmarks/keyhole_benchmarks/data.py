"""The data of a benchmark, cut down to a protocol's size and split once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole import metrics
from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples, prepare, prepare_with
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.scaler import Scaler
from keyhole.data.sites import Sites
from keyhole.data.splits import Split

__all__ = ["Data", "load"]


@dataclass(frozen=True, eq=False)
class Data:
    """One data set, prepared twice: ``plain`` as the paper feeds its networks, ``scaled`` as Keyhole does.

    Plain images keep their values in [0, 1]; plain fields are anomalies from the climatology, as they are scaled.

    Parameters
    ----------
    name
        Name of the data set.
    plain
        Samples as the paper feeds them to its networks.
    scaled
        Samples scaled as Keyhole does it.
    """

    name: str
    plain: PreparedSamples
    scaled: PreparedSamples

    @property
    def samples(self) -> int:
        """How many samples choose sites: all but test."""
        return len(self.plain.development)

    @property
    def domain(self) -> Sites:
        """The sites of the data."""
        return self.plain.samples.sites

    @property
    def cae_decoder(self) -> str:
        """Decoder of the concrete autoencoder: dense for digits, DCGAN for the others, as in the paper."""
        return "dense" if self.name == "mnist" else "dcgan"

    def split(self) -> dict[str, Any]:
        """Return the sizes of the parts, for the record.

        Returns
        -------
        dict
            Number of samples by part.
        """
        return self.plain.split.sizes()

    def score(self, prepared: PreparedSamples, reconstructed: NDArray[np.float32]) -> dict[str, float]:
        """Return the errors of reconstructed test samples.

        Parameters
        ----------
        prepared
            The samples that were used, ``plain`` or ``scaled``.
        reconstructed
            Reconstruction of the test part, scaled as ``prepared`` is.

        Returns
        -------
        dict
            Errors by name, see `keyhole.metrics.evaluate`.
        """
        test = prepared.test
        whole = prepared.scaling.undo(reconstructed, test.time)
        return metrics.evaluate(test.values, whole, self.scaled.scaling.expected(test), test.sites)

    def test(self, prepared: PreparedSamples) -> ScaledSamples:
        """Return the test part.

        Parameters
        ----------
        prepared
            The samples whose scaling is applied, ``plain`` or ``scaled``.

        Returns
        -------
        ScaledSamples
            Scaled test samples.
        """
        return prepared.scaling.apply(prepared.test)


@lru_cache(maxsize=2)
def load(name: str, samples: int | None) -> Data:
    """Load a data set, with a fixed random subset of its training samples.

    Parameters
    ----------
    name
        Name of the data set.
    samples
        Largest number of samples for training and validation together; None for all.

    Returns
    -------
    Data
        Both preparations of the data, with the same split.
    """
    signals = datasets.load(name).with_covariates().with_weights(None)  # nothing but the readings, all sites alike
    split = prepare(signals, _fewer(signals, samples), seed=0).split
    scaled = _prepare(signals, split, Scaler.fit(signals.take(split.development)))
    return Data(name, _plain(scaled), scaled)


def _prepare(signals: Samples, split: Split, scaling: Scaler) -> PreparedSamples:
    """Scale all parts alike: networks are trained on one part or all but test, and scored on test as they are."""
    return prepare_with(signals, split, scaling, scaling)


def _fewer(signals: Samples, samples: int | None) -> Split | None:
    if signals.split is None or samples is None or len(signals.split.development) <= samples:
        return signals.split
    chosen = np.random.default_rng(0).choice(signals.split.development, samples, replace=False)
    return Split.given(chosen, signals.split.test)


def _plain(scaled: PreparedSamples) -> PreparedSamples:
    """Leave images as they are; a field's anomalies already are what the paper feeds."""
    signals = scaled.samples
    if scaled.scaling.climatology.needs_time:
        return scaled
    nothing = Scaler(np.zeros_like(scaled.scaling.baseline), np.ones(signals.channels))
    return _prepare(signals, scaled.split, nothing)
