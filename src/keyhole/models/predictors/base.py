"""What a predictor is: K readings in, what they tell of the target out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from keyhole.core.errors import DataError, PlanError
from keyhole.core.run import Run
from keyhole.core.storage import array_of
from keyhole.data.samples import Samples
from keyhole.data.target import Target

__all__ = ["Examples", "Predictor", "Standard", "target_of"]

_CONSTANT = 1e-6  # spread below this share of the largest value is rounding, not signal


@dataclass(frozen=True, eq=False)
class Standard:
    """Columns less their mean, over their standard deviation: `(x - mean) / scale`; a constant column is not scaled."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Standard:
        """Learn from ``(N, columns)``, or ``(N,)`` for one number."""
        mean = values.mean(axis=0, dtype=np.float64)
        spread = values.std(axis=0, dtype=np.float64)
        varies = spread > _CONSTANT * np.abs(values).max(axis=0)
        return cls(np.asarray(mean), np.where(varies, spread, 1.0))

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int | None, ...]) -> Standard:
        """Take both back from a file; every column is divided by something positive."""
        mean = array_of(arrays, f"{name}.mean", shape)
        scale = array_of(arrays, f"{name}.scale", mean.shape)
        if not (scale > 0).all():
            raise PlanError(f"the array {name + '.scale'!r} holds numbers that are not positive")
        return cls(mean, scale)

    def apply(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Standardise."""
        return np.asarray((values - self.mean) / self.scale, np.float32)

    def undo(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Bring back to the units learned from."""
        return np.asarray(values * self.scale + self.mean, np.float64)


@dataclass(frozen=True, eq=False)
class Examples:
    """Standardised readings ``(N, K * channels)``, and codes of classes or standardised numbers ``(N,)``."""

    inputs: NDArray[np.float32]
    wanted: NDArray[np.int64] | NDArray[np.float32]


class Predictor(ABC):
    """Tells the target of signals from scaled readings at fixed sites.

    Readings are standardised with the training part's mean and deviation, each column by its own, and so is a number
    that is to be told; what a subclass learns lies between the two. ``state`` and ``restore`` carry it through a file:
    settings that JSON can hold, and arrays. One in ``closed_form`` is fitted once more, on everything but the test
    part, when all choices are made.
    """

    name: ClassVar[str]
    closed_form: ClassVar[bool] = False

    def __init__(self) -> None:
        self.target = ""
        self.classes: tuple[str, ...] = ()
        self.readings = self.numbers = Standard(np.zeros(0), np.ones(0))

    @property
    def is_class(self) -> bool:
        """Whether a class is told, not a number."""
        return bool(self.classes)

    @property
    def width(self) -> int:
        """How many outputs there are: one for each class, or one."""
        return len(self.classes) or 1

    @property
    def expected(self) -> float | None:
        """What is known of a number without sensors; None for a class."""
        return None if self.is_class else float(self.numbers.mean)

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation during training, if there was any."""
        return []

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples, run: Run) -> Self:
        """Learn to tell the target from the sites (flat grid indices); ``validation`` serves to stop alone."""
        target = target_of(train)
        self.target, self.classes = target.name, target.classes
        self.readings = Standard.of(_rows(train.readings(sites)))
        self.numbers = Standard.of(np.zeros(1) if target.is_class else target.values)
        self.learn(self.examples(train, sites), self.examples(validation, sites), run)
        return self

    def examples(self, part: Samples, sites: NDArray[np.int64]) -> Examples:
        """Give what there is to learn from: inputs and what is wanted of them."""
        values = target_of(part).values
        wanted = values.astype(np.int64) if self.is_class else self.numbers.apply(values)
        return Examples(self.readings.apply(_rows(part.readings(sites))), wanted)

    def predict(self, readings: NDArray[Any]) -> NDArray[np.float64]:
        """Tell the target from readings ``(N, K, channels)``: probabilities ``(N, classes)``, or numbers ``(N,)``."""
        outputs = self.outputs(self.readings.apply(_rows(readings))).astype(np.float64)
        return np.asarray(softmax(outputs, axis=1)) if self.is_class else self.numbers.undo(outputs[:, 0])

    def answer(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """Give the name of the likeliest class for each row of probabilities, or the numbers as they are."""
        return np.array(self.classes)[scores.argmax(axis=1)] if self.is_class else scores

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give settings and arrays from which ``restore`` makes the same predictor."""
        settings, learned = self.learned()
        arrays = {
            "readings.mean": self.readings.mean,
            "readings.scale": self.readings.scale,
            "numbers.mean": self.numbers.mean,
            "numbers.scale": self.numbers.scale,
        }
        return {"target": self.target, "classes": list(self.classes), **settings}, arrays | learned

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make a fitted predictor from what ``state`` gave; a PlanError where its parts do not agree."""
        own = dict(settings)
        target, classes = own.pop("target"), own.pop("classes")
        if not isinstance(target, str) or not isinstance(classes, list):
            raise PlanError("the predictor: a target's name and a list of classes are needed")
        if not all(isinstance(one, str) for one in classes) or len(set(classes)) < len(classes):
            raise PlanError(f"the classes of {target!r}: different names are needed")
        made = cls(**own)
        made.target, made.classes = target, tuple(classes)
        made.readings = Standard.restore(arrays, "readings", (None,))
        made.numbers = Standard.restore(arrays, "numbers", ())
        made.take_back(arrays)
        return made

    @abstractmethod
    def learn(self, part: Examples, validation: Examples, run: Run) -> None:
        """Learn from standardised examples."""

    @abstractmethod
    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Give a logit for each class, or a standardised number, ``(N, width)``."""

    @abstractmethod
    def learned(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the constructor's settings and the arrays that were learned."""

    @abstractmethod
    def take_back(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what ``learned`` gave."""


def target_of(signals: Samples) -> Target:
    """Give the target of signals that must have one."""
    if signals.target is None:
        raise DataError("the signals have no target to tell; give one by Signals.with_target or read(..., target=...)")
    return signals.target


def _rows(readings: NDArray[Any]) -> NDArray[Any]:
    return readings.reshape(len(readings), -1)
