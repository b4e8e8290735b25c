"""A network from readings to a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.run import Run, digest
from keyhole.core.settings import parse
from keyhole.models.objectives import prediction
from keyhole.models.predictors.base import Examples, Predictor
from keyhole.models.reconstructors.networks import DenseNet, load_network, width_for
from keyhole.models.reconstructors.neural import train_settings_for
from keyhole.models.settings import DenseSettings
from keyhole.training.loop import Task, seeded, train

__all__ = ["Network"]

_CHUNK = 4096


class _Telling(Task):
    """Learn what is wanted of standardised readings, by cross-entropy or squared error."""

    def __init__(self, network: nn.Module, part: Examples, scorer: Examples, is_class: bool) -> None:
        super().__init__()
        self.network, self.is_class, self.samples = network, is_class, len(part.inputs)
        for name, examples in (("training", part), ("validation", scorer)):
            self.register_buffer(f"{name}_inputs", torch.from_numpy(examples.inputs), persistent=False)
            self.register_buffer(f"{name}_wanted", torch.from_numpy(examples.wanted), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        inputs, wanted = self.get_buffer("training_inputs")[batch], self.get_buffer("training_wanted")[batch]
        return {"prediction": prediction(self.network(inputs), wanted, self.is_class)}, None

    def validate(self) -> float:
        inputs, wanted = self.get_buffer("validation_inputs"), self.get_buffer("validation_wanted")
        chunks = zip(torch.split(inputs, _CHUNK), torch.split(wanted, _CHUNK), strict=True)
        return sum(float(prediction(self.network(x), y, self.is_class)) * len(x) for x, y in chunks) / len(inputs)


class Network(Predictor):
    """Dense network from the K readings to a logit for each class, or to a number.

    Trained with AdamW on the cross-entropy or the squared error; the weights are those that were best on validation.

    Parameters
    ----------
    settings
        Those of `DenseSettings`, by name.
    """

    name: ClassVar[str] = "network"

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(DenseSettings, settings)
        self.network: nn.Module = nn.Identity()
        self.rows: list[dict[str, float]] = []

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures of each validation during training."""
        return self.rows

    def learn(self, part: Examples, validation: Examples, run: Run) -> None:
        """Train on ``part``, keep the weights that are best on ``validation``."""
        samples, inputs = part.inputs.shape
        with seeded(run.seed_of("predictor weights")):
            self.network = self._build(inputs, samples)
        chosen = self.settings.train or train_settings_for(samples)
        data = digest(part.inputs, part.wanted, validation.inputs, validation.wanted)
        identity = f"{data} {self.classes} {self.settings} {chosen} {run.seed}"
        task = _Telling(self.network, part, validation, self.is_class)
        self.rows = train(task, chosen, name="refit predictor", identity=identity, run=run)
        self.network = self.network.cpu().eval()

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Run the network in chunks, on the CPU."""
        with torch.inference_mode():
            parts = [self.network(chunk) for chunk in torch.split(torch.from_numpy(inputs), _CHUNK)]
        return np.asarray(torch.cat(parts).numpy())

    def learned(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give settings and weights."""
        arrays = {f"weights.{name}": tensor.cpu().numpy() for name, tensor in self.network.state_dict().items()}
        return self.settings.model_dump(), arrays

    def take_back(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Build the network and take its weights back."""
        weights = {name.removeprefix("weights."): a for name, a in arrays.items() if name.startswith("weights.")}
        self.network = load_network(lambda: self._build(len(self.readings.mean), 1), weights)

    def _build(self, inputs: int, samples: int) -> nn.Module:
        width = self.settings.width or width_for(samples)
        self.settings = self.settings.model_copy(update={"width": width})
        return DenseNet(inputs, self.width, width=width, blocks=self.settings.blocks, dropout=self.settings.dropout)
