"""Reconstructors that are neural networks: dense on the readings, ResNet on the observed grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.run import Run, digest
from keyhole.core.settings import parse
from keyhole.core.storage import count_of
from keyhole.data.grid import Grid
from keyhole.data.samples import Samples
from keyhole.models.objectives import reconstruction
from keyhole.models.reconstructors.base import Reconstructor, flat, known, unpack
from keyhole.models.reconstructors.bounds import ValueBounds
from keyhole.models.reconstructors.networks import DenseNet, ResNet, check_two_dimensional, load_network, width_for
from keyhole.models.reconstructors.training_batches import FixedBatches, TrainingBatches
from keyhole.models.settings import DenseSettings, NetworkSettings, ResNetSettings
from keyhole.training.loop import Task, seconds_per_step, seeded, train
from keyhole.training.settings import TrainSettings

__all__ = ["Dense", "NetworkReconstructor", "RegressionData", "ResNetReconstructor", "train_settings_for"]

_CHUNK = 256  # samples reconstructed at a time; with more, convolutions are limited by memory bandwidth
_SIZES = ("channels", "covariates")  # stored in a file beside the settings
_BOUNDS = "bounds."  # prefix of the bounds' arrays in a file
_MAX_SCORED = 4096  # samples of each validation; enough to resolve differences of a tenth of a percent


class RegressionData(NamedTuple):
    """Samples to read, the targets of the regression, and an estimate of them to which the network adds.

    Parameters
    ----------
    samples
        The samples whose readings and covariates are the inputs.
    targets
        ``(N, channels * valid sites)``; NaN where missing.
    estimate
        ``(N, channels * valid sites)``, or None if the network adds to nothing.
    """

    samples: Samples
    targets: NDArray[Any]
    estimate: NDArray[Any] | None = None

    @classmethod
    def of(cls, samples: Samples, estimate: NDArray[Any] | None = None) -> RegressionData:
        """Make the fields themselves the targets."""
        return cls(samples, flat(samples.truth()), estimate)

    def arrays(self) -> list[NDArray[Any]]:
        """Return all arrays that determine a training, for the digest that identifies its checkpoints."""
        return [self.samples.values, _covariates(self.samples), self.targets, known(self.estimate, len(self.targets))]

    def thinned(self, limit: int) -> RegressionData:
        """Return every n-th sample, with the smallest n that gives at most ``limit`` samples."""
        rows = slice(None, None, -(-len(self.targets) // limit))
        estimate = None if self.estimate is None else self.estimate[rows]
        return RegressionData(self.samples.take(np.arange(len(self.targets))[rows]), self.targets[rows], estimate)


def train_settings_for(samples: int, largest: int = 256, *, limited: bool = False) -> TrainSettings:
    """Default steps and batch size by the number of samples.

    Twenty epochs, but at least 600 and at most 6000 steps; batches of a fifth of the samples, from 16 to ``largest``.

    Parameters
    ----------
    samples
        Number of training samples.
    largest
        Largest batch size.
    limited
        Whether there is a deadline. Then the clock ends the training, and up to forty epochs or 20000 steps are
        allowed.
    """
    epochs, limit = (40, 20_000) if limited else (20, 6000)
    batch = int(min(largest, max(16, samples // 5)))
    return TrainSettings(batch_size=batch, steps=int(min(limit, max(600, epochs * samples // batch))))


class _Regression(Task):
    """Training task: mean squared error of a network's predictions."""

    allows_bf16: ClassVar[bool] = True

    def __init__(self, network: nn.Module, training: TrainingBatches, scored: FixedBatches | None) -> None:
        super().__init__()
        self.network, self.samples = network, training.samples
        self.batches, self.scored = training, scored
        parts = [part for part in (training, scored) if isinstance(part, FixedBatches)]
        self.has_missing = any(bool(part.get_buffer("targets").isnan().any()) for part in parts)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        inputs, estimate, targets = self.batches(batch, generator)
        return {"reconstruction": reconstruction(self.network(inputs, estimate), targets, gaps=self.has_missing)}, None

    def validate(self) -> float | None:
        if self.scored is None:
            return None
        total = 0.0
        for start in range(0, self.scored.samples, _CHUNK):
            inputs, estimate, targets = self.scored.part(slice(start, start + _CHUNK))
            error = reconstruction(self.network(inputs, estimate), targets, gaps=self.has_missing)
            total += float(error) * len(inputs)
        return total / self.scored.samples


class NetworkReconstructor(Reconstructor):
    """Base class of reconstructors that are one network from readings to the values at valid sites.

    A subclass implements ``build``, and may override ``inputs`` and ``pack``. Trained with AdamW on the mean squared
    error;
    the weights with the smallest validation error are kept.

    Attributes
    ----------
    settings
        Architecture and training settings.
    network
        The trained network.
    bounds
        Bounds that predictions are clamped to, if any.
    largest_batch
        Default of the largest batch size.
    """

    settings: NetworkSettings
    largest_batch: ClassVar[int] = 256

    def __init__(self) -> None:
        self.network: nn.Module = nn.Identity()
        self.channels, self.grid, self.sites = 1, Grid.plain((0,)), np.zeros(0, np.int64)
        self.covariates = 0
        self.bounds: ValueBounds | None = None
        self.rows: list[dict[str, float]] = []
        self.train_settings = TrainSettings()

    def anew(self) -> Self:
        """Return an untrained reconstructor with the same settings."""
        return type(self)(**self.settings.model_dump())

    @abstractmethod
    def build(self, samples: int) -> nn.Module:
        """Construct the network for the current grid, channels, covariates and sites.

        Parameters
        ----------
        samples
            Number of training samples, by which default sizes are set.
        """

    @property
    def width(self) -> int:
        """Length of the input vector: readings and covariates."""
        return len(self.sites) * self.channels + self.covariates

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Assemble the network's inputs; by default readings and covariates as one vector.

        Parameters
        ----------
        readings
            ``(N, K, channels)``.
        covariates
            ``(N, columns)``.
        estimate
            What the network adds to, ``(N, channels * valid sites)``, or ``(N, 0)``; not used by default.
        """
        return torch.cat([readings.flatten(1), covariates], dim=1)

    def pack(self, outputs: Tensor) -> Tensor:
        """Select the valid sites of the network's output ``(N, channels, *grid)``: ``(N, channels * valid sites)``."""
        return outputs.flatten(2)[:, :, torch.from_numpy(self.grid.cells)].flatten(1)

    @property
    def history(self) -> list[dict[str, float]]:
        """Losses and validation errors of the training, one row per validation."""
        return self.rows

    @property
    def unfinished(self) -> bool:
        """Whether the deadline ended the training before its last step and before early stopping."""
        errors = [row["validation"] for row in self.rows]
        since_best = len(errors) - 1 - int(np.argmin(errors))
        return self.rows[-1]["step"] < self.train_settings.steps and since_best < self.train_settings.patience

    def pace(self, samples: int, *, limited: bool) -> TrainSettings:
        """Default training settings for so many samples; ``limited`` if there is a deadline."""
        return train_settings_for(samples, self.largest_batch, limited=limited)

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples | None, run: Run) -> Self:
        """Train on ``train``; keep the best weights on ``validation``, or the last if that is None."""
        scored = None if validation is None else RegressionData.of(validation)
        return self.fit_targets(RegressionData.of(train), scored, sites, run, stage=f"refit {self.name}")

    def fit_targets(
        self, training: RegressionData, scored: RegressionData | None, sites: NDArray[np.int64], run: Run,
        *, stage: str, batches: TrainingBatches | None = None,
    ) -> Self:  # fmt: skip
        """Train towards given targets, which need not be the fields themselves.

        Parameters
        ----------
        training
            Training data; the network's output is added to their estimate.
        scored
            Validation data, or None to keep the last weights.
        sites
            Flat grid indices of the K sites.
        run
            Seed, deadline, and folder for checkpoints.
        stage
            Name of the training, for progress and checkpoints.
        batches
            Training batches to use instead of the fixed ones, such as augmented ones.
        """
        train_part = training.samples
        self._set_sizes(train_part, sites)
        with seeded(run.seed_of(f"{self.name} weights")):
            self.network = self.build(len(train_part))
        scorer = None if scored is None else self._fixed_batches(scored.thinned(_MAX_SCORED))
        task = _Regression(_BoundedSum(self, self.network), batches or self._fixed_batches(training), scorer)
        self.train_settings = self.settings.train or self.pace(len(train_part), limited=run.deadline is not None)
        arrays = [array for part in (training, scored) if part is not None for array in part.arrays()]
        weights = [weight.numpy() for weight in self.network.state_dict().values()]
        identity = f"{digest(*arrays, sites, *weights)} {self.settings.model_dump()} {self.train_settings} {run.seed}"
        self.rows = train(task, self.train_settings, name=stage, identity=identity, run=run)
        self.network = self.network.cpu().eval()
        return self

    def seconds_per_epoch(self, train: Samples, sites: NDArray[np.int64], run: Run) -> float:
        """Estimate the duration of an epoch from a few training steps of a temporary network."""
        unfitted = type(self)(**self.settings.model_dump())
        unfitted._set_sizes(train, sites)
        batch = unfitted.pace(len(train), limited=True).batch_size
        first_batch = RegressionData.of(train.take(np.arange(batch)))
        batches = unfitted._fixed_batches(first_batch._replace(estimate=np.zeros_like(first_batch.targets)))
        with seeded(0):
            task = _Regression(_BoundedSum(unfitted, unfitted.build(len(train))), batches, None)
        return seconds_per_step(task, batch, run) * len(train) / batch

    def _set_sizes(self, train: Samples, sites: NDArray[np.int64]) -> None:
        """Adopt grid, channels, covariates and sites of the training samples."""
        self.channels, self.grid, self.sites = train.channels, train.grid, sites
        self.covariates = known(train.covariates, len(train)).shape[1]

    def _fixed_batches(self, training: RegressionData) -> FixedBatches:
        """Read the samples at the sites and assemble batches without augmentation."""
        readings, covariates = _tensor(training.samples.readings(self.sites)), _tensor(_covariates(training.samples))
        estimate = _tensor(known(training.estimate, len(readings)))
        return FixedBatches(self.inputs(readings, covariates, estimate), estimate, _tensor(training.targets))

    def reconstruct(
        self, readings: NDArray[Any], covariates: NDArray[Any] | None = None, estimate: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Reconstruct in chunks, on the CPU; see `Reconstructor.reconstruct`.

        Parameters
        ----------
        readings, covariates
            ``(N, K, channels)``, and ``(N, columns)`` or None.
        estimate
            ``(N, channels * valid sites)``, if the network was trained to add to an estimate.
        """
        bounded_sum = _BoundedSum(self, self.network).eval()
        tensors = [
            _tensor(array) for array in (readings, known(covariates, len(readings)), known(estimate, len(readings)))
        ]
        parts = []
        with torch.inference_mode():
            for start in range(0, len(readings), _CHUNK):
                chunk = [array[start : start + _CHUNK] for array in tensors]
                parts.append(bounded_sum(self.inputs(*chunk), chunk[-1]).numpy())
        return unpack(np.concatenate(parts), self.channels, self.grid)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings, and weights and bounds as arrays."""
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in self.network.state_dict().items()}
        data_sizes = {name: getattr(self, name) for name in _SIZES}
        bounds = {} if self.bounds is None else self.bounds.arrays()
        return {**data_sizes, **self.settings.model_dump()}, arrays | {
            f"{_BOUNDS}{name}": a for name, a in bounds.items()
        }

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Rebuild the network and load its weights; see `Reconstructor.restore`."""
        restored = cls(**{name: value for name, value in settings.items() if name not in _SIZES})
        restored.grid, restored.sites = grid, sites
        restored.channels = count_of(settings, "channels")
        restored.covariates = count_of({"covariates": 0, **settings}, "covariates")  # absent in older files
        restored.bounds = ValueBounds.restore(arrays, _BOUNDS, restored.channels * len(grid.cells))
        weights = {name: array for name, array in arrays.items() if not name.startswith(_BOUNDS)}
        restored.network = load_network(lambda: restored.build(1), weights)
        return restored

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether the network was built for these sizes."""
        return (len(self.sites), self.channels, self.covariates) == (sites, channels, covariates)


class _BoundedSum(nn.Module):
    """Sum of the estimate and the network's output, clamped to the bounds."""

    def __init__(self, owner: NetworkReconstructor, network: nn.Module) -> None:
        super().__init__()
        self.network, self.pack, self.bounds = network, owner.pack, owner.bounds

    def forward(self, inputs: Tensor, estimate: Tensor) -> Tensor:
        added = self.pack(self.network(inputs))
        bounded_sum = added + estimate if estimate.shape[1] else added
        return bounded_sum if self.bounds is None else self.bounds(bounded_sum)


class Dense(NetworkReconstructor):
    """Dense network from the K readings to all sites; see `DenseNet`.

    Parameters
    ----------
    settings
        Those of `DenseSettings`, by name.
    """

    name: ClassVar[str] = "dense"
    settings: DenseSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(DenseSettings, settings)

    def build(self, samples: int) -> nn.Module:
        """Construct a `DenseNet`, by default of a width that suits the number of samples."""
        width = self.settings.width or width_for(samples)
        self.settings = self.settings.model_copy(update={"width": width})
        outputs = self.channels * len(self.grid.cells)
        return DenseNet(
            self.width, outputs,
            width=width, blocks=self.settings.blocks, dropout=self.settings.dropout,
            n_frequencies=self.settings.n_frequencies,
        )  # fmt: skip

    def pack(self, outputs: Tensor) -> Tensor:
        """Return the outputs unchanged: they are the valid sites already."""
        return outputs


class ResNetReconstructor(NetworkReconstructor):
    """ResNet generator of pix2pix on the observed grid, with or without the mask as an input; see `ResNet`.

    Readings are placed on a grid of zeros. Dense networks are usually better with few sites; for two-dimensional grids.

    Parameters
    ----------
    settings
        Those of `ResNetSettings`, by name.
    """

    name: ClassVar[str] = "resnet"
    settings: ResNetSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(ResNetSettings, settings)

    def build(self, samples: int) -> nn.Module:
        """Construct a `ResNet` for the grid."""
        check_two_dimensional(self.grid.shape)
        inputs = self.channels + int(self.settings.mask_channel) + self.covariates
        return ResNet(inputs, self.channels, filters=self.settings.filters, blocks=self.settings.blocks)

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Place readings on a grid of zeros, followed by the mask and the covariates as constant channels."""
        check_two_dimensional(self.grid.shape)
        observed = readings.new_zeros(len(readings), self.channels, self.grid.size)
        index = torch.from_numpy(self.sites)
        observed[:, :, index] = readings.transpose(1, 2)
        if self.settings.mask_channel:
            mask = readings.new_zeros(len(readings), 1, self.grid.size)
            mask[:, :, index] = 1
            observed = torch.cat([observed, mask], dim=1)
        if covariates.shape[1]:
            observed = torch.cat([observed, covariates[:, :, None].expand(-1, -1, self.grid.size)], dim=1)
        return observed.reshape(*observed.shape[:2], *self.grid.shape)


def _covariates(samples: Samples) -> NDArray[np.float32]:
    """Covariates ``(N, columns)`` of samples."""
    return known(samples.covariates, len(samples))


def _tensor(array: NDArray[Any]) -> Tensor:
    """Single-precision tensor of an array."""
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
