"""What reconstructors and predictors have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.core.settings import Configurable
from keyhole.data.scaled_samples import ScaledSamples

__all__ = ["Model"]


class Model(Configurable, ABC):
    """Base class of models that are made from settings, fitted to sites, and stored in a plan.

    Attributes
    ----------
    closed_form
        Whether ``fit`` is a closed form that needs no validation samples. Such a model is refitted on training and
        validation samples together once all choices are made.
    can_refit
        Whether `refit` needs no validation samples either, as of closed forms.
    history
        Losses and validation errors recorded during training, one row per validation; empty for closed forms.

    Examples
    --------
    >>> from keyhole.models.reconstructors import OptimalInterpolation
    >>> OptimalInterpolation(length=0.5).clone().options.length
    0.5
    """

    closed_form: ClassVar[bool] = False
    history: Sequence[dict[str, float]] = ()

    @property
    def can_refit(self) -> bool:
        """Whether the model can be fitted to all samples, without any for validation; see `refit`."""
        return self.closed_form

    @abstractmethod
    def fit(self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Fit to the readings at ``sites``.

        Parameters
        ----------
        train
            Scaled training samples.
        sites
            Numbers of the K sites, ``(K,)``, in rank order.
        validation
            Scaled validation samples, used only for early stopping and model selection.
        run
            Seed, deadline, and folder for checkpoints.

        Returns
        -------
        Model
            The fitted model itself.
        """

    def refit(self, samples: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Return the same model fitted to all samples, once validation has made all choices.

        Parameters
        ----------
        samples
            All scaled samples.
        sites
            Numbers of the K sites, ``(K,)``, in rank order.
        validation
            Those of the samples that were the validation part, for hyperparameters. A network does without: it is
            trained for the number of steps that was best on them.
        run
            Seed and deadline.

        Returns
        -------
        Model
            A new object.
        """
        return self.clone().fit(samples, sites, validation=validation, run=run)
