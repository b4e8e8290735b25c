"""Settings of the training loop; comments give the reason for each default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field, field_validator

from keyhole.core.settings import Settings
from keyhole.training.schedules import SCHEDULES

__all__ = ["TrainSettings"]


class TrainSettings(Settings):
    """Settings of `keyhole.training.loop.train`.

    Parameters
    ----------
    steps
        Number of optimiser steps; early stopping or a time limit may end training before.
    batch_size
        Samples per step, at most all of them.
    learning_rate
        Peak learning rate of AdamW.
    weight_decay
        Decoupled weight decay of AdamW.
    schedule
        Name in `SCHEDULES`. `"cycle"`: linear warm-up, then cosine decay to zero; `"constant"`: the learning rate as
        it is.
    warmup
        Share of the steps over which the learning rate rises.
    ema_decay
        Decay of the exponential moving average of the weights, which is what is validated and kept; 0 disables it.
    gradient_clip
        Largest norm of the gradient.
    validation_steps
        Number of validations during training, evenly spaced.
    patience
        Validations without improvement before early stopping.
    last_step
        Step after which training ends, before the learning rate has gone through its schedule; None: ``steps``.

    References
    ----------
    .. [1] I. Loshchilov and F. Hutter. Decoupled Weight Decay Regularization. ICLR 2019.

    Examples
    --------
    >>> TrainSettings(steps=200).batch_size
    256
    """

    steps: int = Field(1000, ge=1)
    batch_size: int = Field(256, ge=1)
    learning_rate: float = Field(2e-3, gt=0)  # 2e-3 with the one-cycle schedule was the best of those tried on MNIST
    weight_decay: float = Field(0.02, ge=0)  # the networks have few samples for their size
    schedule: str = "cycle"
    warmup: float = Field(0.1, ge=0, le=1)
    ema_decay: float = Field(0.999, ge=0, lt=1)  # averages out the noise of masks and small batches
    gradient_clip: float = Field(1.0, gt=0)  # a rare mask can give a very large gradient
    validation_steps: int = Field(20, ge=1)
    patience: int = Field(8, ge=1)
    last_step: int | None = Field(None, ge=1)

    def without_validation(self, history: Sequence[Mapping[str, float]]) -> TrainSettings:
        """Return the settings of a training without validation that ends where a validated one was best.

        Parameters
        ----------
        history
            Rows of the validated training. If the clock ended that, its last step is the end of the schedule.

        Examples
        --------
        >>> rows = [{"step": step, "validation": error} for step, error in ((0.0, 9.0), (5.0, 2.0), (10.0, 3.0))]
        >>> settings = TrainSettings(steps=20, patience=2).without_validation(rows)
        >>> settings.steps, settings.last_step
        (10, 5)
        """
        errors = [row["validation"] for row in history]
        best = int(np.argmin(errors))
        is_over = len(errors) - 1 - best >= self.patience
        steps = self.steps if is_over else max(1, int(history[-1]["step"]))
        return self.model_copy(update={"steps": steps, "last_step": max(1, int(history[best]["step"]))})

    @field_validator("schedule")
    @classmethod
    def _is_known(cls, name: str) -> str:
        SCHEDULES.check(name)
        return name
