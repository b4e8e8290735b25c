"""Settings of selectors, each default with its reason."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from keyhole.core.settings import Settings
from keyhole.training.settings import TrainSettings

__all__ = [
    "AEFSSettings",
    "CAESettings",
    "GreedySettings",
    "GroupLassoSettings",
    "KernelExchangeSettings",
    "LaplacianSettings",
    "LearnedSettings",
]


Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GreedySettings(Settings):
    """Greedy column subset selection."""

    n_components: int | None = Field(None, ge=1)  # principal components; None: four for each site, at least 200


class KernelExchangeSettings(Settings):
    """Exchange algorithm with a non-linear surrogate."""

    n_restarts: int = Field(8, ge=0)  # random restarts of the local search
    n_candidates: int = Field(3, ge=1)  # candidates scored for each exchange, those of the largest estimated gain


class LaplacianSettings(Settings):
    """Laplacian score."""

    n_neighbors: int = Field(5, ge=1)  # that a sample is joined to; the usual number


class GroupLassoSettings(Settings):
    """Group lasso on blocks of sites."""

    block_size: int = Field(2, ge=1)  # cells a side; the smallest that is a block


class AEFSSettings(Settings):
    """Auto-encoder with a sparse first layer."""

    n_hidden: int = Field(128, ge=1)  # units; of 32, 128 and 512 on MNIST, more chose a little better and took longer
    train: TrainSettings | None = None  # None: by the number of samples


class CAESettings(Settings):
    """Concrete autoencoder (Abid, Balin & Zou, 2019): rows and decoder, trained together."""

    decoder: Literal["dense", "dcgan"] = "dense"
    width: int = Field(320, ge=1, le=16_384)  # of both hidden layers of the dense decoder; theirs
    dropout: float = Field(0.1, ge=0, lt=1)  # in the dense decoder; theirs
    temperature: tuple[Temperature, Temperature] = (10.0, 0.01)  # annealed geometrically; theirs
    selector_learning_rate: float = Field(
        0.1, gt=0
    )  # of the rows; theirs is the decoder's 1e-3, with which none converges in 2000 steps
    distinct: bool = False  # distinct sites: a penalty during training, an assignment at the end
    overlap_weight: float = Field(1.0, ge=0)  # weight of that penalty
    train: TrainSettings | None = None  # None: by the number of samples


class LearnedSettings(Settings):
    """Mask distribution and reconstructor, trained jointly."""

    distribution: Literal["iln", "vln", "hnet", "sct", "simplex"] = "vln"
    rank: int = Field(16, ge=1)  # dimension of z, the paper's
    budget: Literal["exact", "dual", "penalty"] = "exact"  # exact K needs no weight and concentrates best
    l0_weight: float = Field(0.1, ge=0)  # weight on the expected L0; for the penalty budget alone
    k_anneal: float = Field(
        0.0, ge=0, lt=1
    )  # share of the run over which K falls from the distribution's initial count
    masks: Literal["hard", "soft"] = "hard"  # what is seen under dual ascent; the paper's are soft
    objective: Literal["squared", "gan"] = "squared"  # squared error, or pix2pix's: GAN + L1 with a patch discriminator
    l1_weight: float = Field(100.0, ge=0)  # of L1 beside the GAN; pix2pix's
    decoder: Literal["auto", "gaussian", "dense", "resnet"] = "auto"
    mask_channel: bool = True  # whether the resnet sees the mask too; the paper's does not
    warm_start: Literal["none", "greedy", "qr"] = "greedy"  # the search starts where classical selection ends
    temperature: tuple[Temperature, Temperature] = (
        1.0,
        0.1,
    )  # annealed; how near the cut a site must be for its logit to move
    latent_learning_rate: float = Field(
        1.0, gt=0
    )  # learning rate of the latent weights, relative to the distribution's
    mask_learning_rate: float = Field(0.2, gt=0)  # higher than the reconstructor's; 0.02 did not converge in time
    n_masks: int = Field(16, ge=1)  # masks a batch, each shared by several samples
    collapse: Literal["marginal", "frequency", "best"] = (
        "marginal"  # needs no validation part, so masks are trained on it too
    )
    n_candidates: int = Field(64, ge=1)  # joint samples scored on validation by "best"
    train: TrainSettings | None = None
