"""The interface of reconstructors: K readings in, the whole field out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.base import Model

__all__ = ["Reconstructor", "flat", "known"]


class Reconstructor(Model):
    """Base class of reconstructors: estimate scaled fields from scaled readings at K fixed sites.

    A subclass implements ``fit``, ``reconstruct``, ``state``, ``restore`` and ``takes``, and declares its settings, if
    any, as ``settings_class`` (see `keyhole.core.settings.Configurable`). Constructors only store their arguments;
    everything learned from data is learned in ``fit``. ``state`` and ``restore`` serialise a fitted reconstructor as
    JSON-compatible settings and a dictionary of arrays, so that a saved plan holds no code.

    Attributes
    ----------
    any_size
        Whether it is fitted to samples that stay in their file, going through them in panels.
    takes_missing
        Whether readings may be NaN where they are missing. For all others they are imputed from the other readings of
        the same sample.
    tried
        One record per candidate that model selection compared before it chose this one; empty otherwise.
    """

    kind: ClassVar[str] = "reconstructor"
    any_size: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    tried: Sequence[dict[str, Any]] = ()

    def fit_fold(self, train: ScaledSamples, sites: NDArray[np.int64], run: Run) -> Reconstructor:
        """Return another one with the hyperparameters of this one, fitted to all samples but a fold, for cross-fitting.

        Parameters
        ----------
        train
            Scaled samples.
        sites
            Numbers of the K sites that this one was fitted to.
        run
            Seed of random subsets.

        Returns
        -------
        Reconstructor
            By default a clone that selects its hyperparameters anew.
        """
        return self.clone().fit(train, sites, validation=train, run=run)

    @abstractmethod
    def reconstruct(self, readings: NDArray[Any], covariates: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Reconstruct fields from readings.

        Parameters
        ----------
        readings
            Scaled readings, ``(N, K, channels)``, sites in the order given to ``fit``; without NaN, unless it is
            declared as ``takes_missing``.
        covariates
            ``(N, columns)``, with the columns of the samples given to ``fit``; None if they had none.

        Returns
        -------
        ndarray
            Scaled targets, ``(N, channels, m)``.
        """

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings and arrays from which ``restore`` recovers the fitted reconstructor.

        Returns
        -------
        settings : dict
            Values that JSON can represent.
        arrays : dict
            Learned arrays by name.
        """

    def given_settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults under the key ``given``, as closed forms store them."""
        given = self.options.model_dump(exclude_defaults=True)
        return {"given": given} if given else {}

    @classmethod
    @abstractmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Recover a fitted reconstructor from the result of ``state``.

        Parameters
        ----------
        settings, arrays
            As returned by ``state``.
        domain
            The m sites of the samples it was fitted to.
        sites
            Numbers of the K sites, ``(K,)``.

        Raises
        ------
        PlanError
            If the arrays are missing, malformed, or inconsistent with the sites.
        """

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Return why it cannot be fitted to the sensors of these samples, as part of a sentence; None if it can."""
        return None

    def refusal_of_sizes(self, samples: Samples, sites: int) -> str | None:
        """Return why it cannot be fitted to so many sites of the samples, as part of a sentence; None if it can."""
        return None

    @abstractmethod
    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether the fitted reconstructor expects inputs of these sizes.

        Parameters
        ----------
        sites, channels, covariates
            Numbers of sites, channels and covariate columns.
        """

    def takes_readings(self, readings: int, channels: int, covariates: int) -> bool:
        """Return whether it expects so many readings, where a sensor reads one value and the field has channels."""
        return readings % channels == 0 and self.takes(readings // channels, channels, covariates)


def flat(values: NDArray[Any]) -> NDArray[Any]:
    """Flatten ``(N, ...)`` to ``(N, features)``, one row per sample."""
    return values.reshape(len(values), -1)


def known(covariates: NDArray[Any] | None, n: int) -> NDArray[np.float32]:
    """Return covariates as ``(n, columns)`` in single precision; ``(n, 0)`` for None."""
    return np.zeros((n, 0), np.float32) if covariates is None else np.asarray(covariates, np.float32)
