"""The interface of predictors: K readings in, a class or a number out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from keyhole.core.errors import DataError, PlanError
from keyhole.core.run import Run
from keyhole.core.storage import array_of
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.target import Target
from keyhole.models.base import Model

__all__ = ["Examples", "Predictor", "Standardiser", "target_of"]

_CONSTANT = 1e-6  # standard deviation, relative to the largest value, below which a column varies by rounding only


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Standardise columns, `(x - mean) / scale`; a constant column is only centred.

    Parameters
    ----------
    mean, scale
        ``(columns,)``, or scalars for a single number.

    Examples
    --------
    >>> standardiser = Standardiser.fit(np.array([[1.0, 7.0], [3.0, 7.0]]))
    >>> standardiser.transform(np.array([[3.0, 8.0]]))
    array([[1., 1.]], dtype=float32)
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, values: NDArray[Any]) -> Self:
        """Estimate mean and standard deviation from ``(N, columns)``, or ``(N,)`` for a single number."""
        mean, spread = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
        varies = spread > _CONSTANT * np.abs(values).max(axis=0)
        return cls(np.asarray(mean), np.where(varies, spread, 1.0))

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int | None, ...]) -> Self:
        """Recover mean and scale from the arrays of a file.

        Parameters
        ----------
        arrays
            All arrays of the predictor.
        name
            Prefix of the two arrays.
        shape
            Their shape; None for any length.

        Raises
        ------
        PlanError
            If an array is missing or malformed, or a scale is not positive.
        """
        mean = array_of(arrays, f"{name}.mean", shape)
        scale = array_of(arrays, f"{name}.scale", mean.shape)
        if not (scale > 0).all():
            raise PlanError(f"the array {name + '.scale'!r} has values that are not positive")
        return cls(mean, scale)

    def transform(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Standardise values, in single precision."""
        return np.asarray((values - self.mean) / self.scale, np.float32)

    def inverse(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised values to the original units."""
        return np.asarray(values * self.scale + self.mean, np.float64)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and targets of a predictor.

    Parameters
    ----------
    inputs
        Standardised readings, ``(N, K * channels)``.
    targets
        Class codes or standardised numbers, ``(N,)``.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.int64] | NDArray[np.float32]


class Predictor(Model):
    """Base class of predictors: estimate the target of samples from scaled readings at fixed sites.

    Readings are standardised column by column with mean and standard deviation of the training samples, and so is a
    number to be predicted. A subclass maps between the two: it implements ``learn``, ``outputs``, ``learned`` and
    ``restore_learned``, and declares its settings, if any, as ``settings_class`` (see
    `keyhole.core.settings.Configurable`).
    ``state`` and ``restore`` serialise a fitted predictor as JSON-compatible settings and a dictionary of arrays.

    Attributes
    ----------
    target
        Name of the target.
    classes
        Names of the classes; empty if the target is a number.
    readings, numbers
        Standardisers of the readings and of the target.
    """

    kind: ClassVar[str] = "predictor"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.target = ""
        self.classes: tuple[str, ...] = ()
        self.readings = self.numbers = Standardiser(np.zeros(0), np.ones(0))

    @property
    def is_class(self) -> bool:
        """Whether the target is a class, not a number."""
        return bool(self.classes)

    @property
    def n_inputs(self) -> int:
        """Number of readings, over sites and channels."""
        return len(self.readings.mean)

    @property
    def n_outputs(self) -> int:
        """Number of classes, or one for a number."""
        return len(self.classes) or 1

    @property
    def expected(self) -> float | None:
        """Prediction of a number without sensors, the mean of the training samples; None for a class."""
        return None if self.is_class else float(self.numbers.mean)

    def fit(self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit to the readings at ``sites``.

        Parameters
        ----------
        train
            Scaled training samples with a target.
        sites
            Numbers of the K sites, ``(K,)``, in rank order.
        validation
            Scaled validation samples, used only for early stopping.
        run
            Seed, deadline, and folder for checkpoints.

        Returns
        -------
        Predictor
            The fitted predictor itself.
        """
        target = target_of(train)
        self.target, self.classes = target.name, target.classes
        self.readings = Standardiser.fit(_rows(train.readings(sites)))
        self.numbers = Standardiser.fit(np.zeros(1) if target.is_class else target.values)
        self.learn(self.examples(train, sites), self.examples(validation, sites), run)
        return self

    def examples(self, samples: ScaledSamples, sites: NDArray[np.int64]) -> Examples:
        """Return standardised readings at the sites with their targets."""
        values = target_of(samples).values
        targets = values.astype(np.int64) if self.is_class else self.numbers.transform(values)
        return Examples(self.readings.transform(_rows(samples.readings(sites))), targets)

    def predict(self, readings: NDArray[Any]) -> NDArray[np.float64]:
        """Predict the target.

        Parameters
        ----------
        readings
            Scaled readings, ``(N, K, channels)``.

        Returns
        -------
        ndarray
            Probabilities ``(N, classes)``, or numbers ``(N,)`` in the units of the target.
        """
        outputs = self.outputs(self.readings.transform(_rows(readings))).astype(np.float64)
        return np.asarray(softmax(outputs, axis=1)) if self.is_class else self.numbers.inverse(outputs[:, 0])

    def answer(self, predicted: NDArray[np.float64]) -> NDArray[Any]:
        """Return the name of the most probable class of each row, or numbers unchanged; ``predicted`` by `predict`."""
        return np.array(self.classes)[predicted.argmax(axis=1)] if self.is_class else predicted

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings and arrays from which ``restore`` recovers the fitted predictor."""
        settings, arrays = self.learned()
        for name in ("readings", "numbers"):
            standardiser: Standardiser = getattr(self, name)
            arrays = arrays | {f"{name}.mean": standardiser.mean, f"{name}.scale": standardiser.scale}
        return {"target": self.target, "classes": list(self.classes), **settings}, arrays

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Recover a fitted predictor from the result of ``state``.

        Raises
        ------
        PlanError
            If the parts are malformed or inconsistent.
        """
        own = dict(settings)
        target, classes = own.pop("target"), own.pop("classes")
        if not isinstance(target, str) or not isinstance(classes, list):
            raise PlanError("the predictor: the target must be a name, and the classes a list")
        if not all(isinstance(one, str) for one in classes) or len(set(classes)) < len(classes):
            raise PlanError(f"the predictor: the classes of {target!r} must be different names")
        restored = cls(**own)
        restored.target, restored.classes = target, tuple(classes)
        restored.readings = Standardiser.restore(arrays, "readings", (None,))
        restored.numbers = Standardiser.restore(arrays, "numbers", ())
        restored.restore_learned(arrays)
        return restored

    @abstractmethod
    def learn(self, train: Examples, validation: Examples, run: Run) -> None:
        """Fit to standardised examples."""

    @abstractmethod
    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Return a logit for each class, or a standardised number, ``(N, outputs)``."""

    @abstractmethod
    def learned(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the constructor's settings and the learned arrays."""

    @abstractmethod
    def restore_learned(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back the arrays that ``learned`` returned."""


def target_of(samples: ScaledSamples) -> Target:
    """Return the target of samples, or raise a DataError if they have none."""
    if samples.target is None:
        raise DataError("the samples have no target to predict; set one with Samples.with_target or read(target=...)")
    return samples.target


def _rows(readings: NDArray[Any]) -> NDArray[Any]:
    return readings.reshape(len(readings), -1)
