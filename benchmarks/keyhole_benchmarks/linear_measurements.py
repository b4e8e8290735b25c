"""Learned linear measurements: what K free measurements of the whole field reach, as a bound for K sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.objectives import reconstruction
from keyhole.models.principal_components import Components, principal_components
from keyhole.models.reconstructors import ValueBounds
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.networks import DenseNet
from keyhole.models.settings import DenseSettings
from keyhole.models.supervised_training import CHUNK, FixedBatches, SupervisedTask, tensor_of, train_supervised
from keyhole.training.loop import seeded

__all__ = ["LinearMeasurements", "fit_linear_measurements"]


class LinearMeasurements(nn.Module):
    r"""K linear measurements of the field, and a linear and a dense decoder, all of which are trained together.

    .. math:: y = E x + e, \qquad \hat x = D y + d + \mathrm{net}(y)

    It starts as the K leading principal components, scaled to unit variance, with a network that is zero: the best of
    all linear measurements with a linear decoder. Measurements have no noise, so their size has no meaning.

    Parameters
    ----------
    components
        The K leading principal components of the training samples; fewer where their rank is lower.
    settings
        Settings of the network, with a width.
    bounds
        Bounds that reconstructions are clamped to, if any.

    References
    ----------
    Wu, Rosca & Lillicrap (2019). Deep compressed sensing. ICML. Wu, Dimakis, Sanghavi, Yu, Holtmann-Rice, Storcheus,
    Rostamizadeh & Kumar (2019). Learning a compressed sensing measurement matrix via gradient unrolling. ICML.
    """

    def __init__(self, components: Components, settings: DenseSettings, bounds: ValueBounds | None) -> None:
        super().__init__()
        basis, mean = components.basis.reshape(-1, len(components.variances)), components.mean.ravel()
        sizes = np.sqrt(components.variances)
        self.encoder = _linear((basis / sizes).T, -(mean @ basis) / sizes)
        self.linear = _linear(basis * sizes, mean)
        self.network, self.bounds = DenseNet.of(len(sizes), len(basis), settings), bounds

    def forward(self, values: Tensor) -> Tensor:
        """Measure and reconstruct values, ``(N, channels * m)``."""
        readings = self.encoder(values)
        whole: Tensor = self.linear(readings) + self.network(readings)
        return whole if self.bounds is None else self.bounds(whole)

    def reconstruct(self, samples: ScaledSamples) -> NDArray[np.float32]:
        """Measure and reconstruct samples.

        Parameters
        ----------
        samples
            Scaled samples.

        Returns
        -------
        ndarray
            ``(N, channels, m)``.
        """
        with torch.inference_mode():
            parts = [self(part) for part in torch.split(tensor_of(flat(samples.targets)), CHUNK)]
        return torch.cat(parts).numpy().reshape(len(samples), samples.channels, -1)


def fit_linear_measurements(
    train: ScaledSamples, validation: ScaledSamples, k: int, settings: DenseSettings, run: Run
) -> tuple[LinearMeasurements, list[dict[str, float]]]:
    """Train measurements and decoder, keeping what is best on validation; the first validation is of the components.

    Parameters
    ----------
    train, validation
        Scaled samples.
    k
        Number of measurements.
    settings
        Those of a dense network behind K sites, with a width and the settings of its training.
    run
        Seed and precision.

    Returns
    -------
    model : LinearMeasurements
        The trained model.
    history : list of dict
        Losses and validation errors.
    """
    with seeded(run.seed_of("linear measurements")):
        model = LinearMeasurements(principal_components(train, k), settings, ValueBounds.found(train))
    batches, scored = (
        FixedBatches(tensor_of(flat(part.targets)), tensor_of(flat(part.targets))) for part in (train, validation)
    )
    task = SupervisedTask(model, batches, scored, reconstruction, allows_bf16=True)
    if settings.train is None:
        raise ValueError("settings of the training are needed")
    history = train_supervised(task, str(settings.model_dump()), settings.train, stage="linear measurements", run=run)
    return model, history


def _linear(weight: NDArray[Any], bias: NDArray[Any]) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = (nn.Parameter(tensor_of(part)) for part in (weight, bias))
    return layer
