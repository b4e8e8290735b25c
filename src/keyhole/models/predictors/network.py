"""A dense network from readings to a target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.objectives import prediction
from keyhole.models.predictors.base import Examples, Predictor
from keyhole.models.reconstructors.networks import DenseNet, load_network
from keyhole.models.settings import DenseSettings
from keyhole.models.supervised_training import FixedBatches, SupervisedTask, train_settings_for, train_supervised
from keyhole.training.loop import seeded
from keyhole.training.settings import TrainSettings

__all__ = ["Network"]

_CHUNK = 4096  # samples predicted at a time
_WEIGHTS = "weights."  # prefix of the weights' arrays in a file


class Network(Predictor):
    """Dense network from the K readings to a logit for each class, or to a number.

    Trained with AdamW on the cross-entropy or the squared error; the weights with the smallest validation error are
    kept. Prefer `Linear` with few samples.

    Parameters
    ----------
    settings
        Fields of `DenseSettings`, by name.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data.target import Target
    >>> values = np.random.default_rng(0).normal(size=(80, 6))
    >>> samples = kh.read(values).with_target(Target.of(values[:, 2] > 0)).as_scaled()
    >>> network = Network(width=16, train={"steps": 20, "batch_size": 16})
    >>> network.fit(samples, np.array([2, 4]), validation=samples, run=Run()).classes
    ('False', 'True')
    """

    name: ClassVar[str] = "network"
    settings_class = DenseSettings
    options: DenseSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.network: nn.Module = nn.Identity()
        self.train_settings = TrainSettings()
        self.final_settings: TrainSettings | None = None

    @property
    def can_refit(self) -> bool:
        """Always true: the number of steps is that which was best on validation."""
        return True

    def refit(self, samples: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Train a network of the same size on all samples, as long as was best; see `Model.refit`."""
        again = self.clone()
        again.final_settings = self.train_settings.without_validation(self.history)
        return again.fit(samples, sites, validation=validation, run=run)

    def learn(self, train: Examples, validation: Examples, run: Run) -> None:
        """Train on ``train``, keep the weights that are best on ``validation``; see `Predictor.learn`."""
        samples, inputs = train.inputs.shape
        self.options = self.options.for_samples(samples)
        with seeded(run.seed_of("predictor weights")):
            self.network = DenseNet.of(inputs, self.n_outputs, self.options)
        self.train_settings = self.final_settings or self.options.train or train_settings_for(samples)
        is_final = self.final_settings is not None
        batches, scored = (
            FixedBatches(torch.from_numpy(part.inputs), torch.from_numpy(part.targets)) for part in (train, validation)
        )
        loss, stage = partial(prediction, is_class=self.is_class), "final predictor" if is_final else "refit predictor"
        task = SupervisedTask(self.network, batches, None if is_final else scored, loss)
        self.history = train_supervised(task, str(self.options.model_dump()), self.train_settings, stage=stage, run=run)

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Evaluate the network in chunks, on the CPU; see `Predictor.outputs`."""
        with torch.inference_mode():
            return torch.cat([self.network(chunk) for chunk in torch.split(torch.from_numpy(inputs), _CHUNK)]).numpy()

    def learned(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings and weights."""
        arrays = {f"{_WEIGHTS}{name}": tensor.cpu().numpy() for name, tensor in self.network.state_dict().items()}
        return self.settings(), arrays

    def restore_learned(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Rebuild the network and load its weights."""
        weights = {name.removeprefix(_WEIGHTS): a for name, a in arrays.items() if name.startswith(_WEIGHTS)}
        settings = self.options.for_samples(1)
        self.network = load_network(lambda: DenseNet.of(self.n_inputs, self.n_outputs, settings), weights)
