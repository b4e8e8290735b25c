"""Reconstruction by a generative prior: a decoder trained on the samples, whose code is fitted to the readings."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import PlanError
from keyhole.core.run import Run
from keyhole.core.storage import array_of
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.objectives import reconstruction
from keyhole.models.reconstructors.base import flat, known
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.networks import DenseNet
from keyhole.models.reconstructors.neural import NetworkReconstructor
from keyhole.models.settings import GenerativePriorSettings, width_for
from keyhole.models.supervised_training import CHUNK, Batches, FixedBatches, SupervisedTask, tensor_of
from keyhole.training.loop import seeded

__all__ = ["GenerativePrior", "VariationalAutoencoder", "fit_codes", "negative_evidence"]

_PRIOR = "prior."  # prefix of the arrays in a file that are not weights of the network
_LEAST_NOISE = 1e-4  # added to the error, relative to the unit variance of the samples; a perfect fit has no logarithm
_MAX_LOG_VARIANCE = 10.0  # of a code; larger ones overflow before the first steps have taken effect


class VariationalAutoencoder(nn.Module):
    """Encoder to the mean and log variance of a Gaussian code, and decoder from a code drawn with them.

    Parameters
    ----------
    encoder
        From values and covariates to means and log variances.
    decoder
        From codes and covariates to the values at valid sites.

    References
    ----------
    Kingma & Welling (2014). Auto-encoding variational Bayes. ICLR.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, values: Tensor, covariates: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstruction from one draw, and the means and log variances of the codes.

        Parameters
        ----------
        values
            ``(N, channels * m)``.
        covariates
            ``(N, columns)``.
        noise
            Standard normal, ``(N, n_latent)``; zero to reconstruct from the means.
        """
        mean, log_variance = self.encoder(torch.cat([values, covariates], dim=1)).chunk(2, dim=1)
        log_variance = log_variance.clamp(-_MAX_LOG_VARIANCE, _MAX_LOG_VARIANCE)
        codes = mean + noise * (log_variance / 2).exp()
        return self.decoder(torch.cat([codes, covariates], dim=1)), mean, log_variance


def negative_evidence(outputs: tuple[Tensor, Tensor, Tensor], truth: Tensor, *, gaps: bool = False) -> Tensor:
    r"""Return the negative evidence lower bound for each value, with the noise of the largest likelihood.

    With `D` values of a sample and their mean squared error as the variance of the decoder's noise it is
    :math:`\tfrac12 \log \mathrm{mse} + \mathrm{KL} / D` (but for a constant), so that no weight need be set.

    Parameters
    ----------
    outputs
        Reconstruction, means and log variances, as of `VariationalAutoencoder`.
    truth
        ``(N, D)``.
    gaps
        Whether the truth may be NaN.

    References
    ----------
    Rybkin, Daniilidis & Levine (2021). Simple and effective VAE training with calibrated decoders. ICML.

    Examples
    --------
    >>> at_prior = torch.zeros(4, 2)
    >>> negative_evidence((torch.zeros(4, 3), at_prior, at_prior), torch.ones(4, 3)).round(decimals=3)
    tensor(0.)
    """
    reconstructed, mean, log_variance = outputs
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1).mean() / 2
    error = reconstruction(reconstructed, truth, gaps=gaps)
    return (error + _LEAST_NOISE).log() / 2 + divergence / truth.shape[1]


class _DrawnBatches(nn.Module):
    """Batches of values, covariates and targets with noise for the codes, drawn anew each time."""

    def __init__(self, batches: Batches, n_latent: int) -> None:
        super().__init__()
        self.batches, self.samples, self.n_latent = batches, batches.samples, n_latent

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        *inputs, targets = self.batches(batch, generator)
        noise = torch.randn(len(batch), self.n_latent, generator=generator).to(targets.device)
        return (*inputs, noise, targets)


class GenerativePrior(NetworkReconstructor):
    r"""Code of a generative model fitted to the readings (compressed sensing using generative models).

    A decoder `G` from a Gaussian code to the field is trained on the samples, as a variational auto-encoder and without
    regard to the sites. The code of a sample is what agrees best with its readings,

    .. math:: \hat z = \arg\min_z \|G(z)_\text{sites} - y\|^2 + \lambda \|z\|^2, \qquad \hat x = G(\hat z),

    by gradient descent (Adam, with a learning rate that falls to zero) from several codes, of which the best is kept:
    zero, the mean of the prior, and others drawn by the run's seed, the same for all samples. So the same decoder
    serves any sites, and a **missing reading** needs no imputation: its term is left out. By default :math:`\lambda` is
    the variance of what the decoder does not explain, which makes :math:`\hat z` the most probable code. Readings are
    multiplied by the root of the loss weights, if any, as the decoder's values are.

    Reconstruction takes ``n_restarts * n_steps`` passes through the network instead of one. Networks on the readings
    (`Dense`) are usually better, as they are trained for these sites; this one is for comparison with the literature,
    and for readings of which many are missing.

    Parameters
    ----------
    settings
        Fields of `GenerativePriorSettings`, by name.

    References
    ----------
    Bora, Jalal, Price & Dimakis (2017). Compressed sensing using generative models. ICML.

    Examples
    --------
    >>> import keyhole as kh
    >>> waves = np.sin(np.linspace(0, 6, 80)[:, None] + np.arange(12)).astype(np.float32)
    >>> samples, sites = kh.read(waves).as_scaled(), np.array([0, 3])
    >>> prior = GenerativePrior(n_latent=2, width=32, train={"steps": 20, "batch_size": 16})
    >>> readings = samples.readings(sites)
    >>> readings[0, 1] = np.nan
    >>> prior.fit(samples, sites, validation=samples, run=Run()).reconstruct(readings).shape
    (80, 1, 12)
    """

    name: ClassVar[str] = "generative_prior"
    takes_missing: ClassVar[bool] = True
    settings_class = GenerativePriorSettings
    options: GenerativePriorSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.starts: NDArray[np.float32] = np.zeros((1, self.options.n_latent), np.float32)
        self.roots: NDArray[np.float32] = np.ones(0, np.float32)
        self.code_weight = 0.0

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Return why it cannot be fitted: the decoder gives values at sites; see `Reconstructor.refusal`."""
        return (
            None if samples.sensors is None else "it needs a sensor at each site, as its decoder gives the field there"
        )

    def build(self, samples: int) -> nn.Module:
        """Construct the decoder."""
        self.options = self.options.model_copy(update={"width": self.options.width or width_for(samples)})
        return self._dense(self.options.n_latent + self.covariates, self.n_outputs)

    def _dense(self, inputs: int, outputs: int) -> DenseNet:
        width = self.options.width or width_for(1)
        return DenseNet(inputs, outputs, width=width, blocks=self.options.blocks, dropout=0.0)

    def fixed_batches(self, samples: ScaledSamples, linear: LinearReconstructor | None) -> FixedBatches:
        """Return values, covariates and targets of samples, whatever the sites; missing values are imputed.

        Parameters
        ----------
        samples
            Scaled samples.
        linear
            None: the decoder gives the whole field.
        """
        parts = (flat(samples.targets), known(samples.covariates, len(samples)), flat(samples.known_targets))
        return FixedBatches(*map(tensor_of, parts))

    def _set_sizes(self, train: ScaledSamples, sites: NDArray[np.int64]) -> None:
        super()._set_sizes(train, sites)
        self.roots = np.ones(len(sites), np.float32) if train.root is None else train.root[sites].astype(np.float32)

    def _task(self, batches: Batches, scored: FixedBatches | None, has_missing: bool) -> SupervisedTask:
        """The training of the auto-encoder, whose encoder begins with the same weights whatever the seed."""
        latent = self.options.n_latent
        with seeded(0):
            encoder = self._dense(self.n_outputs + self.covariates, 2 * latent)
            if scored is not None:
                *inputs, targets = scored.buffers()
                scored = FixedBatches(*inputs, torch.randn(scored.samples, latent), targets)
        model, loss = VariationalAutoencoder(encoder, self.network), partial(negative_evidence, gaps=has_missing)
        return _EvidenceTask(model, _DrawnBatches(batches, latent), scored, loss, has_missing=has_missing)

    def finish(self, task: SupervisedTask, run: Run) -> None:
        """Set the weight on the code and the codes that fits start from."""
        task.cpu()  # the model is there already, its data may be on another device
        samples, settings = task.validation or task.batches, self.options
        self.code_weight = _unexplained(task, samples) if settings.code_weight is None else settings.code_weight
        drawn = run.generator("initial codes").normal(size=(settings.n_restarts, settings.n_latent))
        self.starts = np.concatenate([np.zeros_like(drawn[:1]), drawn[1:]]).astype(np.float32)

    def reconstruct(
        self, readings: NDArray[Any], covariates: NDArray[Any] | None = None, estimate: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Fit codes in chunks, on the CPU, and decode them; see `Reconstructor.reconstruct`.

        Parameters
        ----------
        readings, covariates
            ``(N, K, channels)``, NaN where missing, and ``(N, columns)`` or None.
        estimate
            None: the decoder gives the whole field.
        """
        parts = [np.zeros((0, self.n_outputs), np.float32)]
        with torch.inference_mode(False):  # fits need gradients, also where a caller has switched them off
            decoder = cast("DenseNet", self.network)
            narrow, starts = self._at_sites(decoder), tensor_of(self.starts)
            at_sites = tensor_of(readings * self.roots[:, np.newaxis]).flatten(1)
            given = tensor_of(known(covariates, len(readings)))
            for chunk in zip(torch.split(at_sites, CHUNK), torch.split(given, CHUNK), strict=True):
                codes = fit_codes(narrow, *chunk, starts, self.code_weight, self.options)
                with torch.no_grad():
                    parts.append(decoder(torch.cat([codes, chunk[1]], dim=1)).numpy())
        return np.concatenate(parts).reshape(len(readings), self.channels, len(self.domain))

    def _at_sites(self, decoder: DenseNet) -> DenseNet:
        """The decoder with the outputs at the selected sites alone, in the order of the readings."""
        rows = (self.sites[:, np.newaxis] + len(self.domain) * np.arange(self.channels)).ravel()
        narrow = copy.deepcopy(decoder).requires_grad_(False).eval()
        narrow.last.weight, narrow.last.bias = (
            nn.Parameter(part.detach()[rows], requires_grad=False) for part in (decoder.last.weight, decoder.last.bias)
        )
        return narrow

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings, and as arrays the decoder's weights and what the fits of codes need."""
        settings, arrays = super().state()
        own = {"starts": self.starts, "roots": self.roots, "code_weight": np.array(self.code_weight)}
        return settings, arrays | {f"{_PRIOR}{name}": array for name, array in own.items()}

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Rebuild the decoder; see `Reconstructor.restore`."""
        weights = {name: array for name, array in arrays.items() if not name.startswith(_PRIOR)}
        restored = super().restore(settings, weights, domain, sites)
        restored.starts = array_of(arrays, f"{_PRIOR}starts", (restored.options.n_restarts, restored.options.n_latent))
        restored.roots = array_of(arrays, f"{_PRIOR}roots", (len(sites),))
        restored.code_weight = float(array_of(arrays, f"{_PRIOR}code_weight", ()))
        numbers = (restored.starts, restored.roots, restored.code_weight)
        if not all(np.isfinite(part).all() for part in numbers) or restored.code_weight < 0:
            raise PlanError("the initial codes of the generative prior, or their weights, are invalid")
        return restored


class _EvidenceTask(SupervisedTask):
    """Training by the evidence, whose validation error is the variance that its logarithm stands for."""

    def validate(self) -> float | None:
        bound = super().validate()
        return None if bound is None else math.exp(2 * bound)


def _unexplained(task: SupervisedTask, samples: Any) -> float:
    """Mean squared error of the decoder at the encoder's means."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for chunk in torch.split(torch.arange(samples.samples), CHUNK):
            *inputs, noise, targets = samples(chunk, torch.Generator())
            left = task.model(*inputs, torch.zeros_like(noise))[0] - targets
            total += float(left.nan_to_num().square().sum())
            count += int((~targets.isnan()).sum())
    return total / max(count, 1)


def fit_codes(
    decoder: nn.Module, readings: Tensor, covariates: Tensor, starts: Tensor, weight: float,
    settings: GenerativePriorSettings,
) -> Tensor:  # fmt: skip
    r"""Minimise :math:`\|G(z) - y\|^2 + \lambda \|z\|^2` for each sample, from all starts; return the best codes.

    Parameters
    ----------
    decoder
        `G`, from codes and covariates to readings, ``(N, readings)``.
    readings
        `y`, ``(N, readings)``, NaN where missing: such terms are left out.
    covariates
        ``(N, columns)``.
    starts
        ``(restarts, n_latent)``, the same for all samples.
    weight
        :math:`\lambda`.
    settings
        Number of steps and initial learning rate.

    Returns
    -------
    Tensor
        ``(N, n_latent)``.
    """
    count, restarts = len(readings), len(starts)
    observed = ~readings.isnan().repeat_interleave(restarts, dim=0)
    wanted, given = (part.repeat_interleave(restarts, dim=0) for part in (readings.nan_to_num(), covariates))

    def objective(codes: Tensor) -> Tensor:
        left: Tensor = (decoder(torch.cat([codes, given], dim=1)) - wanted) * observed
        return torch.sum(left.square(), dim=1) + weight * torch.sum(codes.square(), dim=1)

    with torch.enable_grad():
        codes = starts.repeat(count, 1).requires_grad_()
        optimiser = torch.optim.Adam([codes])
        for step in range(settings.n_steps):
            optimiser.param_groups[0]["lr"] = settings.code_learning_rate * (1 - step / settings.n_steps)
            (codes.grad,) = torch.autograd.grad(objective(codes).sum(), codes)
            optimiser.step()
        best = objective(codes).detach().reshape(count, restarts).argmin(dim=1)
    return codes.detach()[best + restarts * torch.arange(count)]
