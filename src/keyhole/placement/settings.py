"""Settings of selectors, each default with its reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from keyhole.core.settings import Settings
from keyhole.training.settings import TrainSettings

__all__ = [
    "STAGES",
    "AEFSSettings",
    "AutoSettings",
    "CAESettings",
    "CovarianceLimits",
    "ExchangeSettings",
    "ExclusiveLassoSettings",
    "ForestSettings",
    "GreedySettings",
    "GroupLassoSettings",
    "KernelExchangeSettings",
    "LaplacianSettings",
    "LassoSettings",
    "LearnedSettings",
    "LocalSearchSettings",
    "MCFSSettings",
    "SelfRepresentationSettings",
    "SparseGroupLassoSettings",
    "SupervisedSettings",
]


Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GreedySettings(Settings):
    """Greedy column subset selection."""

    n_components: int | None = Field(None, ge=1)  # principal components; None: four for each site, at least 200


class LocalSearchSettings(Settings):
    """Local search by exchanges, with random restarts."""

    n_restarts: int = Field(8, ge=0)  # from the perturbed incumbent; later ones seldom improve it
    min_improvement: float = Field(1e-4, ge=0)  # relative, below which an exchange is not made, so that searches end
    perturbed_share: float = Field(0.2, gt=0, le=1)  # of the incumbent's sites, at least two
    n_perturbation_candidates: int = Field(10, ge=1)  # among which a perturbed site is drawn, the best in its place


class CovarianceLimits(Settings):
    """Size of the cross-covariance between targets and candidates, which a search updates at each step."""

    max_size: int = Field(10_000_000, ge=1)  # numbers in it; where there are more, targets are projected on directions
    min_directions: int = Field(256, ge=1)  # whatever its size
    max_full_size: int = Field(200_000_000, ge=1)  # numbers before the projection; where more, a subset of targets
    numbers_per_second: int = Field(3_000_000, ge=1)  # projected, approximately, on one core; fewer where time is short


class ExchangeSettings(LocalSearchSettings):
    """Exchange algorithm under a localised covariance."""

    max_samples: int = Field(10_000, ge=1)  # that the covariance is estimated from; more hardly change it
    limits: CovarianceLimits = CovarianceLimits()  # of memory and time


class KernelExchangeSettings(LocalSearchSettings):
    """Exchange algorithm with a non-linear surrogate."""

    min_improvement: float = Field(2e-4, ge=0)  # less is noise of the samples that score
    perturbed_share: float = Field(0.125, gt=0, le=1)  # less than in a linear search: a repair takes minutes
    n_candidates: int = Field(3, ge=1)  # candidates scored for each exchange, those of the largest estimated gain
    min_samples: int = Field(60, ge=1)  # fewer do not determine a non-linear surrogate: the initial sites are returned
    max_leave_one_out_samples: int = Field(1200, ge=0)  # up to which all samples score; the cost is cubic in them
    close_optima: float = Field(1.03, ge=1)  # other local optima within this factor of the lowest error are reported
    n_others: int = Field(3, ge=0)  # at most so many of them


class SupervisedSettings(Settings):
    """Selectors for a target."""

    max_samples: int = Field(10_000, ge=1)  # drawn by the run's seed; more hardly change the ranking


class ForestSettings(SupervisedSettings):
    """Recursive feature elimination by extra trees."""

    n_trees: int = Field(300, ge=1)  # importances of fewer are noisy
    kept_share: float = Field(0.7, gt=0, lt=1)  # of the sites, in each round until there are K


class LassoSettings(Settings):
    """Multi-task lasso."""

    max_steps: int = Field(2000, ge=1)  # of the proximal gradient for one working set; tens to hundreds suffice


class GroupLassoSettings(LassoSettings):
    """Group lasso on blocks of sites."""

    block_size: int = Field(2, ge=1)  # sites along each side of a block; the smallest that is a block


class SparseGroupLassoSettings(GroupLassoSettings):
    """Sparse-group lasso on blocks of sites."""

    lasso_share: float = Field(0.5, ge=0, le=1)  # of the penalty; both parts alike


class ExclusiveLassoSettings(LassoSettings):
    """Exclusive lasso on blocks of sites."""

    block_size: int | None = Field(None, ge=1)  # sites along each side; None: the smallest with at most K blocks


class LaplacianSettings(Settings):
    """Laplacian score."""

    max_samples: int = Field(2000, ge=1)  # of the graph, drawn by the run's seed; memory grows with them

    n_neighbors: int = Field(5, ge=1)  # that a sample is joined to; the usual number


class MCFSSettings(LaplacianSettings):
    """Multi-cluster feature selection."""

    n_eigenvectors: int = Field(5, ge=1)  # of the graph, one for each cluster; theirs where clusters are not known


class SelfRepresentationSettings(Settings):
    """Regularised self-representation."""

    max_samples: int = Field(2000, ge=1)  # drawn by the run's seed; each has a weight, updated in every step


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

    distribution: Literal["iln", "vln", "hnet", "graph_vln", "sct", "simplex"] = "vln"
    rank: int = Field(16, ge=1)  # dimension of z, the paper's
    diffusion_time: float = Field(1.0, gt=0, allow_inf_nan=False)  # of graph_vln: neighbours, and hardly theirs
    n_eigenvectors: int = Field(32, ge=1)  # of graph_vln; what they leave of its covariance is noise of each site
    budget: Literal["exact", "dual", "penalty"] = "exact"  # exact K needs no weight and concentrates best
    l0_weight: float = Field(0.1, ge=0)  # weight on the expected L0; for the penalty budget alone
    k_anneal: float = Field(
        0.0, ge=0, lt=1
    )  # share of the run over which K falls from the distribution's initial count
    masks: Literal["hard", "soft"] = "hard"  # what is seen under dual ascent; the paper's are soft
    objective: Literal["squared", "gan"] = "squared"  # squared error, or pix2pix's: GAN + L1 with a patch discriminator
    l1_weight: float = Field(100.0, ge=0)  # of L1 beside the GAN; pix2pix's
    # Of the field by the number of samples, of a target dense; "kernel" trains nothing but the masks.
    decoder: Literal["auto", "gaussian", "dense", "resnet", "kernel"] = "auto"
    mask_channel: bool = True  # whether the resnet sees the mask too; the paper's does not
    # The search starts where classical selection ends; for a target from nothing, unless it is "relevance".
    warm_start: Literal["none", "greedy", "qr", "relevance"] = "greedy"
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
    local_search: bool = False  # whether the sites are improved by exchanges afterwards; the paper's are not
    n_restarts: int = Field(2, ge=0)  # of a non-linear local search; each takes as long as the search before it
    train: TrainSettings | None = None


STAGES = ("greedy", "qr", "exchange", "learned", "kernel_exchange")


class AutoSettings(LearnedSettings):
    """Stages of the automatic selection, and settings of the learned stage."""

    # Or comma-separated text; greedy or QR must be among them. None: all for a target, all but learned for the field:
    # in 67 recorded runs learned was never chosen there, and took 38 % of the time.
    stages: list[str] | None = None

    @field_validator("stages", mode="before")
    @classmethod
    def _checked(cls, given: Any) -> list[str] | None:
        if given is None:
            return None
        stages = given.split(",") if isinstance(given, str) else list(given)
        unknown = [stage for stage in stages if stage not in STAGES]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not known; there are {', '.join(STAGES)}")
        if not {"greedy", "qr"} & set(stages):
            raise ValueError("greedy or qr must be among them, so that the outcome is never worse")
        return [stage for stage in STAGES if stage in stages]
