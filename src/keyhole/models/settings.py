"""Settings of reconstructors and predictors, each default with its reason."""

from __future__ import annotations

from pydantic import Field

from keyhole.core.settings import Settings
from keyhole.training.settings import TrainSettings

__all__ = [
    "DCGANSettings",
    "DenseConvSettings",
    "DenseSettings",
    "NetworkSettings",
    "OptimalInterpolationSettings",
    "ResNetSettings",
]


class OptimalInterpolationSettings(Settings):
    """Optimal interpolation; hyperparameters that are None are selected by cross-validation."""

    length: float | None = Field(None, gt=0)  # of the localisation, in units of the grid's positions
    strength: float | None = Field(None, gt=0)  # of the regularisation, relative to the readings' mean variance
    share: float | None = Field(None, ge=0)  # scale of the interactions of readings with covariates
    means: bool | None = None  # whether the mean depends on the covariates
    # A localised covariance must lower the cross-validation error by this share: a trend that goes on beyond a fold
    # correlates distant sites, which folds from the middle of a series do not show.
    min_localisation_gain: float = Field(0.02, ge=0, lt=1)
    n_folds: int = Field(5, ge=2)  # contiguous, since neighbouring samples of a series are alike
    # Subset on which hyperparameters are selected: selection costs as much as a hundred fits.
    max_samples: int = Field(10_000, ge=2)
    max_targets: int = Field(2048, ge=1)


class NetworkSettings(Settings):
    """A network that reconstructs from fixed sites."""

    train: TrainSettings | None = None  # None: by the number of samples


class DenseSettings(NetworkSettings):
    """Dense network on the readings: a linear layer, residual blocks, a linear layer."""

    width: int | None = Field(None, ge=1, le=16_384)  # None: by the number of samples, see `width_for`
    blocks: int = Field(2, ge=0, le=64)
    dropout: float = Field(0.1, ge=0, lt=1)
    n_frequencies: int = Field(0, ge=0, le=256)  # of each reading, as further inputs; `auto` tries whether they pay


class DenseConvSettings(DenseSettings):
    """Dense network, then convolutions over the grid."""

    filters: int | None = Field(None, ge=1, le=1024)  # of each convolution; None: by the size of the grid
    layers: int = Field(3, ge=0, le=64)  # residual blocks of two convolutions


class ResNetSettings(NetworkSettings):
    """Generator of pix2pix on the observed grid; the paper's sizes."""

    filters: int = Field(16, ge=1, le=1024)
    blocks: int = Field(2, ge=0, le=64)
    mask_channel: bool = True  # else an unobserved cell and an observed zero look the same


class DCGANSettings(NetworkSettings):
    """Decoder of DCGAN from the readings to the grid."""

    filters: int = Field(32, ge=1, le=1024)  # of the last but one layer; each before it has twice as many
