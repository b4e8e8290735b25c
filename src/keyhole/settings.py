"""Typed settings of every stage that trains, each default with its reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keyhole.errors import SettingsError

__all__ = [
    "AEFSSettings",
    "CAESettings",
    "DCGANSettings",
    "DenseSettings",
    "DetailSettings",
    "GreedySettings",
    "GroupLassoSettings",
    "LaplacianSettings",
    "LearnedSettings",
    "NetworkSettings",
    "ResNetSettings",
    "Settings",
    "SwapSettings",
    "TrainSettings",
    "parse",
]


Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Base: unknown names are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TrainSettings(Settings):
    """How a network is trained."""

    steps: int = Field(1000, ge=1)
    batch: int = Field(256, ge=1)
    rate: float = Field(2e-3, gt=0)  # AdamW's; 2e-3 with a one-cycle was the best of those tried on MNIST
    weight_decay: float = Field(0.02, ge=0)  # networks here see few samples for their size
    schedule: Literal["cycle", "constant"] = "cycle"  # of the rate: up and down over the run, or as it is
    warmup: float = Field(0.1, ge=0, le=1)  # share of the steps over which the rate rises
    average: float = Field(0.999, ge=0, lt=1)  # of the weights; smooths the noise of the masks and of small batches
    clip: float = Field(1.0, gt=0)  # of the gradient's norm: a rare mask can give a huge one
    validations: int = Field(20, ge=1)  # looks at the validation part during a run
    patience: int = Field(8, ge=1)  # looks without a better one before it stops


class NetworkSettings(Settings):
    """A network that rebuilds from fixed sites."""

    train: TrainSettings | None = None  # None: by the number of samples


class DenseSettings(NetworkSettings):
    """Dense network on the readings: a linear layer, residual blocks, a linear layer."""

    width: int | None = Field(None, ge=1, le=16_384)  # None: by the number of samples, see `width_for`
    blocks: int = Field(2, ge=0, le=64)
    dropout: float = Field(0.1, ge=0, lt=1)
    waves: int = Field(0, ge=0, le=256)  # of each reading, as further inputs; `auto` tries whether they pay


class DetailSettings(DenseSettings):
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


class GreedySettings(Settings):
    """Greedy column subset selection."""

    components: int | None = Field(None, ge=1)  # that stand for the data; None: four for each site, at least 200


class SwapSettings(Settings):
    """Swaps judged by a quick non-linear reconstruction."""

    hops: int = Field(8, ge=0)  # times that some sites are moved at random when no swap helps any more
    tries: int = Field(3, ge=1)  # sites scored for each swap, of those that explain most of what is left


class LaplacianSettings(Settings):
    """Laplacian score."""

    neighbours: int = Field(5, ge=1)  # that a sample is joined to; the usual number


class GroupLassoSettings(Settings):
    """Group lasso on blocks of sites."""

    block: int = Field(2, ge=1)  # cells a side; the smallest that is a block


class AEFSSettings(Settings):
    """Auto-encoder with a sparse first layer."""

    hidden: int = Field(128, ge=1)  # units; of 32, 128 and 512 on MNIST, more chose a little better and took longer
    train: TrainSettings | None = None  # None: by the number of samples


class CAESettings(Settings):
    """Concrete autoencoder (Abid, Balin & Zou, 2019): rows and decoder, trained together."""

    decoder: Literal["dense", "dcgan"] = "dense"
    width: int = Field(320, ge=1, le=16_384)  # of both hidden layers of the dense decoder; theirs
    dropout: float = Field(0.1, ge=0, lt=1)  # in the dense decoder; theirs
    temperature: tuple[Temperature, Temperature] = (10.0, 0.01)  # annealed geometrically; theirs
    row_rate: float = Field(0.1, gt=0)  # of the rows; theirs is the decoder's 1e-3, which settles none in 2000 steps
    distinct: bool = False  # no site twice: a penalty while it learns, an assignment at the end
    overlap: float = Field(1.0, ge=0)  # weight of that penalty
    train: TrainSettings | None = None  # None: by the number of samples


class LearnedSettings(Settings):
    """Law and reconstructor, trained together."""

    law: Literal["iln", "vln", "hnet", "sct", "simplex"] = "vln"
    latent: int = Field(16, ge=1)  # dimension of z, the paper's
    budget: Literal["exact", "dual", "penalty"] = "exact"  # exact K needs no weight and concentrates best
    penalty: float = Field(0.1, ge=0)  # weight on the expected L0; for the penalty budget alone
    fall: float = Field(0.0, ge=0, lt=1)  # share of the run over which K falls from the law's first count
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
    latent_rate: float = Field(1.0, gt=0)  # share of the law's step for the weights of its latent
    law_rate: float = Field(0.2, gt=0)  # the law moves faster than the reconstructor; 0.02 did not settle in time
    draws: int = Field(16, ge=1)  # masks a batch, each shared by several signals
    collapse: Literal["marginal", "frequency", "best"] = "marginal"  # needs no validation part, so the law sees it too
    candidates: int = Field(64, ge=1)  # joint samples scored on validation by "best"
    train: TrainSettings | None = None


Kind = TypeVar("Kind", bound=Settings)


def parse(kind: type[Kind], given: dict[str, Any]) -> Kind:
    """Make settings from plain values; a name or value that does not fit is a SettingsError that names it."""
    try:
        return kind(**given)
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"{kind.__name__}: {details}") from error
