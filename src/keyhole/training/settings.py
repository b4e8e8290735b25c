"""How networks are trained, each default with its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from keyhole.core.settings import Settings

__all__ = ["TrainSettings"]


class TrainSettings(Settings):
    """How a network is trained."""

    steps: int = Field(1000, ge=1)
    batch_size: int = Field(256, ge=1)
    learning_rate: float = Field(2e-3, gt=0)  # AdamW's; 2e-3 with a one-cycle was the best of those tried on MNIST
    weight_decay: float = Field(0.02, ge=0)  # networks here see few samples for their size
    schedule: Literal["cycle", "constant"] = "cycle"  # of the rate: up and down over the run, or as it is
    warmup: float = Field(0.1, ge=0, le=1)  # share of the steps over which the rate rises
    ema_decay: float = Field(0.999, ge=0, lt=1)  # of the weights; smooths the noise of the masks and of small batches
    gradient_clip: float = Field(1.0, gt=0)  # of the gradient's norm: a rare mask can give a huge one
    validation_steps: int = Field(20, ge=1)  # looks at the validation part during a run
    patience: int = Field(8, ge=1)  # looks without a better one before it stops
