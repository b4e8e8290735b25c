"""Reconstructors that are networks: dense on the readings, ResNet on the observed grid."""

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

_CHUNK = 256  # samples that a network rebuilds at a time; with more, convolutions wait for memory
_FACTS = ("channels", "covariates")  # that a file holds beside the settings
_BOUNDS = "bounds."  # before the names of their arrays in a file
_MOST_JUDGED = 4096  # samples at each look of a training; a tenth of a percent is told by fewer


class RegressionData(NamedTuple):
    """Signals to read, what is to be made of their readings, and what is estimated of that already; both packed."""

    signals: Samples
    targets: NDArray[Any]
    estimate: NDArray[Any] | None = None

    @classmethod
    def of(cls, signals: Samples, estimate: NDArray[Any] | None = None) -> RegressionData:
        """Let the signals be rebuilt themselves."""
        return cls(signals, flat(signals.truth()), estimate)

    def arrays(self) -> list[NDArray[Any]]:
        """All that defines it."""
        return [self.signals.values, _context(self.signals), self.targets, known(self.estimate, len(self.targets))]

    def fewer(self, most: int) -> RegressionData:
        """Give every second sample, or third, ..., so that there are at most so many."""
        some = slice(None, None, -(-len(self.targets) // most))
        estimate = None if self.estimate is None else self.estimate[some]
        return RegressionData(self.signals.take(np.arange(len(self.targets))[some]), self.targets[some], estimate)


def train_settings_for(samples: int, largest: int = 256, *, limited: bool = False) -> TrainSettings:
    """Steps and batch by the number of samples: twenty passes, but at least 600 steps and at most 6000.

    Where time is ``limited`` the clock sets the pace, and steps may be more: twice the passes, up to 20000.
    """
    passes, most = (40, 20_000) if limited else (20, 6000)
    batch = int(min(largest, max(16, samples // 5)))
    return TrainSettings(batch_size=batch, steps=int(min(most, max(600, passes * samples // batch))))


class _Regression(Task):
    """Learn targets from inputs by a network."""

    allows_bf16: ClassVar[bool] = True

    def __init__(self, network: nn.Module, taught: TrainingBatches, judged: FixedBatches | None) -> None:
        super().__init__()
        self.network, self.samples = network, taught.samples
        self.taught, self.judged = taught, judged
        parts = [part for part in (taught, judged) if isinstance(part, FixedBatches)]
        self.gaps = any(bool(part.get_buffer("targets").isnan().any()) for part in parts)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        inputs, estimate, targets = self.taught(batch, generator)
        return {"reconstruction": reconstruction(self.network(inputs, estimate), targets, gaps=self.gaps)}, None

    def validate(self) -> float | None:
        if self.judged is None:
            return None
        total = 0.0
        for start in range(0, self.judged.samples, _CHUNK):
            inputs, estimate, targets = self.judged.part(slice(start, start + _CHUNK))
            total += float(reconstruction(self.network(inputs, estimate), targets, gaps=self.gaps)) * len(inputs)
        return total / self.judged.samples


class NetworkReconstructor(Reconstructor):
    """Base of reconstructors that are one network from readings to packed cells."""

    settings: NetworkSettings
    largest_batch: ClassVar[int] = 256

    def __init__(self) -> None:
        self.network: nn.Module = nn.Identity()
        self.channels, self.grid, self.sites = 1, Grid.plain((0,)), np.zeros(0, np.int64)
        self.covariates = 0
        self.bounds: ValueBounds | None = None
        self.rows: list[dict[str, float]] = []
        self.asked = TrainSettings()

    def anew(self) -> Self:
        """Give an untrained network of the same settings."""
        return type(self)(**self.settings.model_dump())

    @abstractmethod
    def build(self, samples: int) -> nn.Module:
        """Make the network for the grid, channels and sites at hand."""

    @property
    def width(self) -> int:
        """How many numbers `inputs` gives the network, where they are one vector."""
        return len(self.sites) * self.channels + self.covariates

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Turn readings ``(N, K, channels)`` and context into what the network takes: one vector, by default.

        ``estimate`` is what the network adds to, packed, or has no columns where there is none; not used by default.
        """
        return torch.cat([readings.flatten(1), covariates], dim=1)

    def pack(self, outputs: Tensor) -> Tensor:
        """Turn what the network gives, a grid unless it says otherwise, into packed cells ``(N, channels * cells)``."""
        return outputs.flatten(2)[:, :, torch.from_numpy(self.grid.cells)].flatten(1)

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation during training."""
        return self.rows

    @property
    def unfinished(self) -> bool:
        """Whether the clock ended the training, before its steps or its patience did."""
        errors = [row["validation"] for row in self.rows]
        stale = len(errors) - 1 - int(np.argmin(errors))
        return self.rows[-1]["step"] < self.asked.steps and stale < self.asked.patience

    def pace(self, samples: int, *, limited: bool) -> TrainSettings:
        """How to train where nothing is said of it; ``limited`` where time is."""
        return train_settings_for(samples, self.largest_batch, limited=limited)

    def fit(self, train: Samples, sites: NDArray[np.int64], *, validation: Samples | None, run: Run) -> Self:
        """Train on ``train``, keep the weights that are best on ``validation``; without it, the last ones."""
        judged = None if validation is None else RegressionData.of(validation)
        return self.fit_targets(RegressionData.of(train), judged, sites, run, stage=f"refit {self.name}")

    def fit_targets(
        self, taught: RegressionData, judged: RegressionData | None, sites: NDArray[np.int64], run: Run,
        *, stage: str, lessons: TrainingBatches | None = None,
    ) -> Self:  # fmt: skip
        """Train towards packed targets, which need not be the signals themselves; the network adds to the estimate.

        ``stage`` names the training; ``lessons`` are in place of the taught ones where these are to change.
        """
        train_part = taught.signals
        self._suit(train_part, sites)
        with seeded(run.seed_of(f"{self.name} weights")):
            self.network = self.build(len(train_part))
        scorer = None if judged is None else self._lessons(judged.fewer(_MOST_JUDGED))
        task = _Regression(_Whole(self, self.network), lessons or self._lessons(taught), scorer)
        self.asked = self.settings.train or self.pace(len(train_part), limited=run.deadline is not None)
        arrays = [array for part in (taught, judged) if part is not None for array in part.arrays()]
        weights = [weight.numpy() for weight in self.network.state_dict().values()]
        identity = f"{digest(*arrays, sites, *weights)} {self.settings.model_dump()} {self.asked} {run.seed}"
        self.rows = train(task, self.asked, name=stage, identity=identity, run=run)
        self.network = self.network.cpu().eval()
        return self

    def seconds_per_epoch(self, train: Samples, sites: NDArray[np.int64], run: Run) -> float:
        """Tell how long it would take to learn from every sample once, by a few steps of a network that is not kept."""
        other = type(self)(**self.settings.model_dump())
        other._suit(train, sites)
        batch = other.pace(len(train), limited=True).batch_size
        first = RegressionData.of(train.take(np.arange(batch)))
        lessons = other._lessons(first._replace(estimate=np.zeros_like(first.targets)))
        with seeded(0):
            task = _Regression(_Whole(other, other.build(len(train))), lessons, None)
        return seconds_per_step(task, batch, run) * len(train) / batch

    def _suit(self, train: Samples, sites: NDArray[np.int64]) -> None:
        """Be for the grid, channels, context and sites at hand."""
        self.channels, self.grid, self.sites = train.channels, train.grid, sites
        self.covariates = known(train.covariates, len(train)).shape[1]

    def _lessons(self, taught: RegressionData) -> FixedBatches:
        readings, given = _tensor(taught.signals.readings(self.sites)), _tensor(_context(taught.signals))
        estimate = _tensor(known(taught.estimate, len(readings)))
        return FixedBatches(self.inputs(readings, given, estimate), estimate, _tensor(taught.targets))

    def reconstruct(
        self, readings: NDArray[Any], covariates: NDArray[Any] | None = None, estimate: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Rebuild in chunks, on the CPU; ``estimate`` is what the network was fitted to add to, packed, if anything."""
        whole = _Whole(self, self.network).eval()
        given = [
            _tensor(array) for array in (readings, known(covariates, len(readings)), known(estimate, len(readings)))
        ]
        parts = []
        with torch.inference_mode():
            for start in range(0, len(readings), _CHUNK):
                some = [array[start : start + _CHUNK] for array in given]
                parts.append(whole(self.inputs(*some), some[-1]).numpy())
        return unpack(np.concatenate(parts), self.channels, self.grid)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give settings and weights."""
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in self.network.state_dict().items()}
        facts = {name: getattr(self, name) for name in _FACTS}
        bounds = {} if self.bounds is None else self.bounds.arrays()
        return {**facts, **self.settings.model_dump()}, arrays | {f"{_BOUNDS}{name}": a for name, a in bounds.items()}

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], grid: Grid, sites: NDArray[np.int64]
    ) -> Self:
        """Build the network and take its weights back."""
        made = cls(**{name: value for name, value in settings.items() if name not in _FACTS})
        made.grid, made.sites = grid, sites
        made.channels = count_of(settings, "channels")
        made.covariates = count_of({"covariates": 0, **settings}, "covariates")  # files older than context have none
        made.bounds = ValueBounds.restore(arrays, _BOUNDS, made.channels * len(grid.cells))
        weights = {name: array for name, array in arrays.items() if not name.startswith(_BOUNDS)}
        made.network = load_network(lambda: made.build(1), weights)
        return made

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Whether the network was built for so many."""
        return (len(self.sites), self.channels, self.covariates) == (sites, channels, covariates)


class _Whole(nn.Module):
    """The estimate with what a network adds to it, within the limits; packed cells."""

    def __init__(self, owner: NetworkReconstructor, network: nn.Module) -> None:
        super().__init__()
        self.network, self.pack, self.bounds = network, owner.pack, owner.bounds

    def forward(self, inputs: Tensor, estimate: Tensor) -> Tensor:
        added = self.pack(self.network(inputs))
        whole = added + estimate if estimate.shape[1] else added
        return whole if self.bounds is None else self.bounds(whole)


class Dense(NetworkReconstructor):
    """Dense network from the K readings to all cells."""

    name: ClassVar[str] = "dense"
    settings: DenseSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(DenseSettings, settings)

    def build(self, samples: int) -> nn.Module:
        """Make a DenseNet as wide as the number of samples allows."""
        width = self.settings.width or width_for(samples)
        self.settings = self.settings.model_copy(update={"width": width})
        outputs = self.channels * len(self.grid.cells)
        return DenseNet(
            self.width, outputs,
            width=width, blocks=self.settings.blocks, dropout=self.settings.dropout,
            n_frequencies=self.settings.n_frequencies,
        )  # fmt: skip

    def pack(self, outputs: Tensor) -> Tensor:
        """Give the outputs as they are."""
        return outputs


class ResNetReconstructor(NetworkReconstructor):
    """ResNet generator of pix2pix on the observed grid, with or without the mask as a second input."""

    name: ClassVar[str] = "resnet"
    settings: ResNetSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(ResNetSettings, settings)

    def build(self, samples: int) -> nn.Module:
        """Make a ResNet for the grid."""
        check_two_dimensional(self.grid.shape)
        inputs = self.channels + int(self.settings.mask_channel) + self.covariates
        return ResNet(inputs, self.channels, filters=self.settings.filters, blocks=self.settings.blocks)

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Put the readings on the grid, zero elsewhere, the mask behind them, and context as constant channels."""
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


def _context(signals: Samples) -> NDArray[np.float32]:
    return known(signals.covariates, len(signals))


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
