"""Reconstructors that are neural networks: dense on the readings, ResNet on the observed grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.core.storage import count_of
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.objectives import reconstruction
from keyhole.models.reconstructors.augmentation import Augmentation, AugmentedBatches
from keyhole.models.reconstructors.base import Reconstructor, flat, known
from keyhole.models.reconstructors.bounds import ValueBounds
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.networks import (
    DenseNet,
    ResNet,
    check_two_dimensional,
    load_network,
    observed_grid,
)
from keyhole.models.settings import DenseSettings, NetworkSettings, ResNetSettings
from keyhole.models.supervised_training import (
    CHUNK,
    Batches,
    FixedBatches,
    SupervisedTask,
    tensor_of,
    train_settings_for,
    train_supervised,
)
from keyhole.training.loop import seconds_per_step, seeded
from keyhole.training.settings import TrainSettings

__all__ = ["Dense", "NetworkReconstructor", "ResNetReconstructor"]

_SIZES = ("channels", "covariates")  # stored in a file beside the settings
_BOUNDS = "bounds."  # prefix of the bounds' arrays in a file
_MAX_SCORED = 4096  # samples of each validation; enough to resolve differences of a tenth of a percent


class NetworkReconstructor(Reconstructor):
    """Base class of reconstructors that are one network from readings to the values at valid sites.

    A subclass implements ``build``, and may override ``inputs``. Trained with AdamW on the mean squared error; the
    weights with the smallest validation error are kept.

    Attributes
    ----------
    network
        The trained network. Its outputs are those of the sites, ``(N, channels * m)``, or of a whole grid, ``(N,
        channels, *shape)``.
    bounds
        Bounds that predictions are clamped to, if any.
    channels, domain, sites, covariates
        Number of channels, all sites, selected sites and number of covariates of the training samples.
    places
        The site of each selected sensor; ``sites`` unless sensors are elsewhere.
    train_settings
        The settings that it was trained with.
    final_settings
        Those of a training on all samples, see `refit`; None before.
    largest_batch
        Default of the largest batch size.
    """

    options: NetworkSettings
    largest_batch: ClassVar[int] = 256

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.network: nn.Module = nn.Identity()
        self.channels, self.domain, self.sites, self.covariates = 1, Sites.plain((0,)), np.zeros(0, np.int64), 0
        self.places = self.sites
        self.bounds: ValueBounds | None = None
        self.train_settings = TrainSettings()
        self.final_settings: TrainSettings | None = None

    @abstractmethod
    def build(self, samples: int) -> nn.Module:
        """Construct the network for the current sites, channels, covariates and sites.

        Parameters
        ----------
        samples
            Number of training samples, by which default sizes are set.
        """

    @property
    def n_inputs(self) -> int:
        """Number of readings and covariates."""
        return len(self.sites) * self.channels + self.covariates

    @property
    def n_outputs(self) -> int:
        """Number of values at valid sites."""
        return self.channels * len(self.domain)

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Assemble the network's inputs; by default readings and covariates as one vector.

        Parameters
        ----------
        readings
            ``(N, K, channels)``.
        covariates
            ``(N, columns)``.
        estimate
            What the network adds to, ``(N, channels * m)``, or ``(N, 0)``; not used by default.
        """
        return torch.cat([readings.flatten(1), covariates], dim=1)

    @property
    def unfinished(self) -> bool:
        """Whether the deadline ended the training before its last step and before early stopping."""
        errors = [row["validation"] for row in self.history]
        since_best = len(errors) - 1 - int(np.argmin(errors))
        return self.history[-1]["step"] < self.train_settings.steps and since_best < self.train_settings.patience

    def pace(self, samples: int, *, limited: bool) -> TrainSettings:
        """Return the default training settings for so many samples; ``limited`` if there is a deadline."""
        return train_settings_for(samples, self.largest_batch, limited=limited)

    def fit(
        self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples | None, run: Run
    ) -> Self:
        """Train on ``train``; keep the best weights on ``validation``, or the last if that is None."""
        return self.fit_residual(None, train, sites, validation=validation, run=run, stage=f"refit {self.name}")

    def fit_residual(
        self, linear: LinearReconstructor | None, train: ScaledSamples, sites: NDArray[np.int64],
        *, validation: ScaledSamples | None, run: Run, stage: str, augmentation: Augmentation | None = None,
    ) -> Self:  # fmt: skip
        """Train a network that is added to a linear reconstruction.

        Parameters
        ----------
        linear
            The fitted linear reconstructor; None to reconstruct by the network alone.
        train, sites, validation, run
            As `fit` takes them.
        stage
            Name of the training, for progress and checkpoints.
        augmentation
            Random transformations of the training samples, if any.
        """
        self._set_sizes(train, sites)
        with seeded(run.seed_of(f"{self.name} weights")):
            self.network = self.build(len(train))
        if augmentation is None or linear is None:
            batches: Batches = self.fixed_batches(train, linear)
        else:
            batches = AugmentedBatches(augmentation, linear, train, sites, self.inputs)
        scored = None if validation is None else self.fixed_batches(_thinned(validation), linear)
        usual = self.options.train or self.pace(len(train), limited=run.deadline is not None)
        self.train_settings = self.final_settings or usual
        has_missing = train.missing is not None or (validation is not None and validation.missing is not None)
        task = self._task(batches, scored, has_missing)
        self.history = train_supervised(task, self.identity, self.train_settings, stage=stage, run=run)
        self.finish(task, run)
        return self

    def finish(self, task: SupervisedTask, run: Run) -> None:
        """Set what is learned once the network is trained; nothing by default.

        Parameters
        ----------
        task
            The finished training, its model on the CPU.
        run
            Its seed.
        """

    @property
    def can_refit(self) -> bool:
        """Always true: the number of steps is that which was best on validation."""
        return True

    def for_refit(self) -> Self:
        """Return an unfitted network of the same size, to be trained for the number of steps that was best."""
        again = self.clone()
        again.final_settings = self.train_settings.without_validation(self.history)
        return again

    def refit(self, samples: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Train a network of the same size on all samples, without validation; see `Model.refit`."""
        stage = f"final {self.name}"
        return self.for_refit().fit_residual(None, samples, sites, validation=None, run=run, stage=stage)

    def seconds_per_epoch(self, train: ScaledSamples, sites: NDArray[np.int64], run: Run) -> float:
        """Estimate the duration of an epoch from a few training steps of a temporary network.

        Parameters
        ----------
        train, sites, run
            As `fit` takes them.
        """
        unfitted = self.clone()
        unfitted._set_sizes(train, sites)
        batch = unfitted.pace(len(train), limited=True).batch_size
        with seeded(0):
            unfitted.network = unfitted.build(len(train))
        task = unfitted._task(
            unfitted.fixed_batches(train.take(np.arange(batch)), None), None, train.missing is not None
        )
        return seconds_per_step(task, batch, run) * len(train) / batch

    def _set_sizes(self, train: ScaledSamples, sites: NDArray[np.int64]) -> None:
        """Adopt sites, channels, covariates and sites of the training samples."""
        reason = self.refusal(train)
        if reason is not None:
            raise SettingsError(f"reconstructor {self.name!r}: {reason}")
        self.channels, self.domain, self.sites = train.channels, train.sites, sites
        self.places = train.reading_sites(sites)[:: train.reading_channels]
        self.covariates = known(train.covariates, len(train)).shape[1]

    def fixed_batches(self, samples: ScaledSamples, linear: LinearReconstructor | None) -> FixedBatches:
        """Return inputs, linear estimate and targets of samples, at the current sites.

        Parameters
        ----------
        samples
            Scaled samples.
        linear
            The fitted linear reconstructor that the network is added to, if any.
        """
        readings, covariates = samples.readings(self.sites), known(samples.covariates, len(samples))
        estimate = known(None if linear is None else flat(linear.reconstruct(readings, covariates)), len(samples))
        parts = [tensor_of(part) for part in (readings, covariates, estimate, flat(samples.known_targets))]
        return FixedBatches(self.inputs(*parts[:3]), *parts[2:])

    @property
    def identity(self) -> str:
        """What tells the training from others of the same data and weights, for checkpoints."""
        return str(self.options.model_dump())

    def _task(self, batches: Batches, scored: FixedBatches | None, has_missing: bool) -> SupervisedTask:
        model, loss = _BoundedSum(self), partial(reconstruction, gaps=has_missing)
        return SupervisedTask(model, batches, scored, loss, has_missing=has_missing, allows_bf16=True)

    def reconstruct(
        self, readings: NDArray[Any], covariates: NDArray[Any] | None = None, estimate: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Reconstruct in chunks, on the CPU; see `Reconstructor.reconstruct`.

        Parameters
        ----------
        readings, covariates
            ``(N, K, channels)``, and ``(N, columns)`` or None.
        estimate
            ``(N, channels * m)``, if the network was trained to add to an estimate.
        """
        model = _BoundedSum(self).eval()
        parts = (readings, known(covariates, len(readings)), known(estimate, len(readings)))
        with torch.inference_mode():
            chunks = zip(*(torch.split(tensor_of(part), CHUNK) for part in parts), strict=True)
            packed = torch.cat([model(self.inputs(*chunk), chunk[-1]) for chunk in chunks])
        return packed.numpy().reshape(len(readings), self.channels, -1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings, and weights and bounds as arrays."""
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in self.network.state_dict().items()}
        if self.bounds is not None:
            arrays |= {f"{_BOUNDS}{name}": array for name, array in self.bounds.arrays().items()}
        return {name: getattr(self, name) for name in _SIZES} | self.settings(), arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Rebuild the network and load its weights; see `Reconstructor.restore`."""
        restored = cls(**{name: value for name, value in settings.items() if name not in _SIZES})
        restored.domain, restored.sites, restored.places = domain, sites, sites
        restored.channels = count_of(settings, "channels")
        restored.covariates = count_of({"covariates": 0, **settings}, "covariates")  # absent in older files
        restored.bounds = ValueBounds.restore(arrays, _BOUNDS, restored.n_outputs)
        weights = {name: array for name, array in arrays.items() if not name.startswith(_BOUNDS)}
        restored.network = load_network(lambda: restored.build(1), weights)
        return restored

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Return why it cannot be fitted: it takes all channels of each sensor; see `Reconstructor.refusal`."""
        if samples.sensors is not None and samples.channels > 1:
            return (
                f"it needs a sensor of all {samples.channels} channels at each site; ridge, optimal_interpolation and "
                "kernel take sensors of one"
            )
        return None

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether the network was built for these sizes."""
        return (len(self.sites), self.channels, self.covariates) == (sites, channels, covariates)


class _BoundedSum(nn.Module):
    """Sum of the estimate and the network's output at the valid sites, clamped to the bounds."""

    def __init__(self, owner: NetworkReconstructor) -> None:
        super().__init__()
        self.network, self.bounds, self.index = owner.network, owner.bounds, torch.from_numpy(owner.domain.index)

    def forward(self, inputs: Tensor, estimate: Tensor) -> Tensor:
        outputs: Tensor = self.network(inputs)
        added = outputs if outputs.ndim == 2 else outputs.flatten(2)[:, :, self.index].flatten(1)
        whole = added + estimate if estimate.shape[1] else added
        return whole if self.bounds is None else self.bounds(whole)


def _thinned(samples: ScaledSamples) -> ScaledSamples:
    """Every n-th sample, with the smallest n that gives at most the number that a validation needs."""
    return samples.take(np.arange(0, len(samples), -(-len(samples) // _MAX_SCORED)))


class Dense(NetworkReconstructor):
    """Dense network from the K readings to all sites; see `DenseNet`.

    Parameters
    ----------
    settings
        Fields of `DenseSettings`, by name.

    Examples
    --------
    >>> import keyhole as kh
    >>> waves = np.sin(np.linspace(0, 6, 80)[:, None] + np.arange(12)).astype(np.float32)
    >>> samples, sites = kh.read(waves).as_scaled(), np.array([0, 3])
    >>> dense = Dense(width=32, train={"steps": 20, "batch_size": 16})
    >>> dense.fit(samples, sites, validation=samples, run=Run()).reconstruct(samples.readings(sites)).shape
    (80, 1, 12)
    """

    name: ClassVar[str] = "dense"
    settings_class = DenseSettings
    options: DenseSettings

    def build(self, samples: int) -> nn.Module:
        """Construct a `DenseNet`, by default of a width that suits the number of samples."""
        self.options = self.options.for_samples(samples)
        return DenseNet.of(self.n_inputs, self.n_outputs, self.options)


class ResNetReconstructor(NetworkReconstructor):
    """ResNet generator of pix2pix on the observed grid, with or without the mask as an input; see `ResNet`.

    Readings are placed on a grid of zeros. Dense networks are usually better with few sites; for two-dimensional grids.

    Parameters
    ----------
    settings
        Fields of `ResNetSettings`, by name.
    """

    name: ClassVar[str] = "resnet"
    settings_class = ResNetSettings
    options: ResNetSettings

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Return why it cannot be fitted: readings are placed on the grid; see `Reconstructor.refusal`."""
        return None if samples.sensors is None else "it needs a sensor at each site, as readings are placed on the grid"

    def build(self, samples: int) -> nn.Module:
        """Construct a `ResNet` for the grid."""
        check_two_dimensional(self.domain.shape)
        inputs = self.channels + int(self.options.mask_channel) + self.covariates
        sizes = self.options.model_dump(include={"filters", "blocks", "n_phases"})
        return ResNet(inputs, self.channels, **sizes)

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Place readings on a grid of zeros, followed by the mask and the covariates as constant channels."""
        at = self.domain.index[self.sites]
        return observed_grid(readings, covariates, at, self.domain.shape, mask_channel=self.options.mask_channel)
