"""Settings of reconstructors and predictors, each default with its reason."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import ConfigDict, Field

from keyhole.core.settings import Settings
from keyhole.training.settings import TrainSettings

__all__ = [
    "DCGANSettings", "DenseConvSettings", "DenseSettings", "EnsembleSettings", "GenerativePriorSettings",
    "GraphRidgeSettings", "KernelSettings", "ModelSelectionSettings", "ModuleSettings", "NetworkSettings",
    "OptimalInterpolationSettings", "ResNetSettings", "ResidualSettings", "width_for",
]  # fmt: skip


class KernelSettings(Settings):
    """Kernel ridge regression."""

    max_samples: int = Field(4000, ge=2)  # time grows with their third power, a plan's file with their number
    # Subset on which the hyperparameters are selected: there are 48 candidates.
    max_selection_samples: int = Field(1000, ge=2)
    max_targets: int = Field(512, ge=1)


class GraphRidgeSettings(Settings):
    """Ridge regression with a penalty along the edges of a graph."""

    n_folds: int = Field(5, ge=2)  # contiguous, since neighbouring samples of a series are alike
    max_dense_sites: int = Field(3000, ge=1)  # up to which all eigenvectors of the Laplacian are computed


class OptimalInterpolationSettings(Settings):
    """Optimal interpolation; hyperparameters that are None are selected by cross-validation."""

    length: float | None = Field(None, gt=0)  # of the localisation, relative to the extent of the sites
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


def width_for(samples: int) -> int:
    """Return the default width of a dense network: 3.5 times the square root of the samples, from 128 to 1024.

    768 for MNIST's 48000 samples, 128 for a few hundred monthly maps.

    Parameters
    ----------
    samples
        Number of training samples.

    Examples
    --------
    >>> width_for(48_000)
    768
    """
    return int(min(1024, max(128, 64 * round(3.5 * math.sqrt(samples) / 64))))


class NetworkSettings(Settings):
    """A network that reconstructs from fixed sites."""

    train: TrainSettings | None = None  # None: by the number of samples


class DenseSettings(NetworkSettings):
    """Dense network on the readings: a linear layer, residual blocks, a linear layer."""

    width: int | None = Field(None, ge=1, le=16_384)  # None: by the number of samples, see `width_for`
    blocks: int = Field(2, ge=0, le=64)
    dropout: float = Field(0.1, ge=0, lt=1)
    n_frequencies: int = Field(0, ge=0, le=256)  # of each reading, as further inputs; `auto` tries whether they pay

    def for_samples(self, samples: int) -> Self:
        """Return these settings with a width for the number of training samples, if none is given."""
        return self.model_copy(update={"width": self.width or width_for(samples)})


class DenseConvSettings(DenseSettings):
    """Dense network, then convolutions over the grid."""

    filters: int | None = Field(None, ge=1, le=1024)  # of each convolution; None: by the size of the grid
    layers: int = Field(3, ge=0, le=64)  # residual blocks of two convolutions


class ResNetSettings(NetworkSettings):
    """Generator of pix2pix on the observed grid; the paper's sizes."""

    filters: int = Field(16, ge=1, le=1024)
    blocks: int = Field(2, ge=0, le=64)
    mask_channel: bool = True  # else an unobserved cell and an observed zero look the same
    # Of its strides, averaged after training with random shifts. 0, neither: given sites cannot move to the lattice of
    # the strides, and each phase costs as much as the whole.
    n_phases: Literal[0, 1, 4, 16] = 0


class ModuleSettings(NetworkSettings):
    """A network of the user's own."""

    inputs: Literal["readings", "grid"] = "readings"
    mask_channel: bool = True  # else an unobserved site and an observed zero look the same
    with_covariates: bool = False  # as further inputs, or constant channels of the grid
    linear: Literal["ridge", "optimal_interpolation"] | None = None  # that the network is added to
    loss: str = ""  # name of a loss of the user's own
    train_loss: bool = False  # whether the parameters of the loss are trained too


class DCGANSettings(NetworkSettings):
    """Decoder of DCGAN from the readings to the grid."""

    filters: int = Field(32, ge=1, le=1024)  # of the last but one layer; each before it has twice as many


class GenerativePriorSettings(NetworkSettings):
    """Decoder of a variational auto-encoder, whose code is fitted to the readings."""

    n_latent: int = Field(20, ge=1, le=4096)  # length of the code; theirs for MNIST
    width: int | None = Field(None, ge=1, le=16_384)  # None: by the number of samples, see `width_for`
    blocks: int = Field(2, ge=0, le=64)  # as of the dense network on the readings
    # Weight on the code's square; None: the variance of what the decoder does not explain, for the most probable code.
    code_weight: float | None = Field(None, ge=0)
    n_restarts: int = Field(4, ge=1, le=1000)  # fits from different codes, of which the best is kept; theirs are ten
    n_steps: int = Field(200, ge=1, le=10_000)  # of each fit; theirs are a thousand, without a falling learning rate
    code_learning_rate: float = Field(0.1, gt=0)  # at first; theirs for MNIST


class ResidualSettings(Settings):
    """A linear reconstruction and a network that is added to it; further settings are those of the network."""

    model_config = ConfigDict(extra="allow")

    inner: Literal["dense", "dense_conv", "resnet", "dcgan"] = "dense"
    linear: Literal["ridge", "optimal_interpolation"] = "ridge"
    label: str = ""  # distinguishes the checkpoints of several trainings in the same run


class EnsembleSettings(ResidualSettings):
    """Networks whose mean is taken; further settings are those of each network."""

    members: int = Field(3, ge=1)  # the first few lower the error most; each takes as long as one network


class ModelSelectionSettings(Settings):
    """Choice among closed forms and networks, where no reconstructor is named."""

    max_members: int = Field(5, ge=1)  # of an ensemble
    # Epochs that each member of an ensemble of dense networks should have. Unexplained variance on MNIST, 20 sites, one
    # core, 330 s, validation: 0.269 for three members of 9 epochs (0.276 each), 0.271 for one network of 36 epochs.
    epochs_per_member: int = Field(12, ge=1)
    # Minimum steps of a dense and of a convolutional network where epochs are short. CelebA, 100 and 200 sites, 6400
    # faces, 300 s on one core, validation: 300 steps of a dense network lowered the linear error by 1.3 %, about 800
    # steps of a convolutional one not at all.
    min_steps: int = Field(1000, ge=1)
    min_steps_convolutional: int = Field(2000, ge=1)
    # Minimum epochs of a convolutional network; with fewer, an ensemble of dense ones is better in the same time.
    # MNIST, 20 sites, two cores without bfloat16 instructions, 780 s, validation: 8 epochs lowered the error of a dense
    # network by 2.2 %; two dense networks do so in half the time, and five lower it by 3.4 %. The break-even point,
    # between 8 and the twenty epochs that a processor with such instructions manages, was not measured.
    min_epochs_convolutional: int = Field(12, ge=1)
    many_samples: int = 2000  # from which convolutions may improve on a linear map even if a dense network does not
    # Remaining time, relative to the first member's, from which another member is trained.
    min_time_share: float = Field(0.4, ge=0)
    train: TrainSettings | None = None  # of every network; None: by the number of samples
