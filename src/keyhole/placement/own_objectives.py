"""Objectives of learned masks with a decoder or a loss of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from keyhole.core.errors import SettingsError
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.target import Target
from keyhole.masks import share
from keyhole.models.own_modules import (
    GridLoss,
    LossLike,
    ModuleLike,
    OwnLoss,
    SiteOutputs,
    identity_of,
    loss_name,
    make_module,
    name_of,
    outputs_of,
)
from keyhole.models.reconstructors.mask_conditional import ConditionalReconstructor, SitesToGrid
from keyhole.placement.learned_objectives import (
    MaskObjective,
    PredictionObjective,
    ReconstructionObjective,
    make_objective,
)
from keyhole.placement.settings import LearnedSettings
from keyhole.training.loop import seeded

__all__ = ["OwnParts"]

_UNIT_SAMPLES = 1024  # from which the unit of a loss is computed


@dataclass(frozen=True)
class OwnParts:
    """Decoder and loss of the user's own; see `keyhole.placement.Learned`.

    Parameters
    ----------
    decoder
        The decoder, or what makes it; None for one of Keyhole's.
    loss
        The loss; None for the squared error or cross-entropy.
    train_loss
        Whether the parameters of a loss that is a module are trained too.

    Examples
    --------
    >>> OwnParts(nn.Conv2d(2, 1, 3), nn.functional.l1_loss).names()
    {'decoder': 'conv2d', 'loss': 'l1_loss'}
    """

    decoder: ModuleLike | None = None
    loss: LossLike | None = None
    train_loss: bool = False

    def names(self) -> dict[str, Any]:
        """Return what the record of a plan says of them."""
        decoder = {} if self.decoder is None else {"decoder": name_of(self.decoder)}
        return decoder | ({} if self.loss is None else {"loss": loss_name(self.loss)})

    def refusal(self, samples: Samples | ScaledSamples, settings: LearnedSettings) -> str | None:
        """Return why the samples or other settings do not suit them; None if they do."""
        if settings.objective != "squared":
            return f"objective={settings.objective!r} has a decoder and a loss of its own; give neither with it"
        if self.loss is not None and settings.decoder == "kernel":
            return "its kernel decoder has the squared error in closed form, and takes no other loss"
        if self.decoder is None:
            return None
        try:
            with seeded(0):
                self.make_decoder(samples, settings, None)
        except SettingsError as error:
            return f"decoder: {error}"
        return None

    def make_decoder(
        self, samples: Samples | ScaledSamples, settings: LearnedSettings, root: Any
    ) -> ConditionalReconstructor:
        """Return the decoder, whose shapes are checked.

        Parameters
        ----------
        samples
            With sites, channels and target.
        settings
            Says whether it is given the mask.
        root
            Square root of the loss weights, ``(m,)``, if any.
        """
        module, mask = make_module(self.decoder), settings.mask_channel  # type: ignore[arg-type]
        inputs = torch.zeros(samples.channels + int(mask), *samples.sites.shape)
        channels = f"{samples.channels} channel{'s' * (samples.channels > 1)}"
        taken = f"a batch of masked grids ({channels}{', the mask' if mask else ''})"
        if samples.target is not None:
            return _OwnHead(module, samples, samples.target, inputs, taken, mask_channel=mask)
        outputs = SiteOutputs(module, samples.channels, samples.sites, root)
        outputs.check(inputs, taken)
        return _OwnDecoder(outputs, samples, root, mask_channel=mask)

    def objective(self, samples: ScaledSamples, k: int, settings: LearnedSettings) -> MaskObjective:
        """Return the objective of the samples, with an untrained decoder.

        Parameters
        ----------
        samples, k, settings
            As `make_objective` takes them.
        """
        decoder = None if self.decoder is None else self.make_decoder(samples, settings, samples.root)
        if samples.target is not None:
            return _OwnPrediction(samples, samples.target, decoder, self)
        if decoder is None:
            decoder = make_objective(samples, k, settings).get_submodule("decoder")  # type: ignore[assignment]
        return _OwnReconstruction(decoder, samples, self)  # type: ignore[arg-type]

    def identity(self, objective: MaskObjective) -> str:
        """Return what tells them from others, for checkpoints."""
        decoder = None if self.decoder is None else objective.get_submodule("decoder")
        return identity_of(decoder, self.loss)


class _MaskedGrid(nn.Module):
    """Samples observed through masks, on the grid, in standardised units; the mask as the last channel if asked for."""

    def __init__(self, samples: Samples | ScaledSamples, root: Any, *, mask_channel: bool) -> None:
        super().__init__()
        self.grid, self.mask_channel = SitesToGrid(samples.sites), mask_channel
        self.register_buffer("root", None if root is None else torch.from_numpy(root), False)

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        mask = share(masks, len(x)).unsqueeze(1)
        values = x if self.root is None else x / self.get_buffer("root")
        parts = [self.grid(values * mask), *([self.grid(mask)] if self.mask_channel else [])]
        return torch.cat(parts, dim=1)


class _OwnDecoder(ConditionalReconstructor):
    """A module from the masked grid to the field."""

    def __init__(
        self, network: SiteOutputs, samples: Samples | ScaledSamples, root: Any, *, mask_channel: bool
    ) -> None:
        super().__init__()
        self.network, self.masked = network, _MaskedGrid(samples, root, mask_channel=mask_channel)

    def forward(self, x: Tensor, masks: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Reconstruct the targets, ``(N, channels * m)``."""
        return self.network(self.masked(x, masks))  # type: ignore[no-any-return]


class _OwnHead(ConditionalReconstructor):
    """A module from the masked grid to one logit for each class, or to a number."""

    def __init__(
        self, module: nn.Module, samples: Samples | ScaledSamples, target: Target, inputs: Tensor, taken: str,
        *, mask_channel: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        outputs = len(target.classes) or 1
        needed = f"(2, {outputs}), " + (f"a logit for each of {outputs} classes" if target.is_class else "a number")
        found = tuple(outputs_of(module, inputs, taken=taken, needed=needed).shape)
        if found != (2, outputs) and not (outputs == 1 and found == (2,)):
            raise SettingsError(f"it returns {found} for {(2, *inputs.shape)}, which is {taken}; needed is {needed}")
        self.network, self.outputs = module, outputs
        self.masked = _MaskedGrid(samples, None, mask_channel=mask_channel)

    def forward(self, x: Tensor, masks: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Map standardised values to ``(N, outputs)``."""
        predicted: Tensor = self.network(self.masked(x, masks))
        return predicted.reshape(len(x), self.outputs)


class _OwnReconstruction(ReconstructionObjective):
    """Reconstruction by a decoder of the user's own, or with a loss of the user's own."""

    def __init__(self, decoder: ConditionalReconstructor, samples: ScaledSamples, own: OwnParts) -> None:
        super().__init__(decoder, samples)
        self.loss: GridLoss | None = None
        if own.loss is not None:
            self.loss = GridLoss(own.loss, samples.sites, samples.root, train=own.train_loss)
            self.unit = self._unit(samples) or self.unit

    def _unit(self, samples: ScaledSamples) -> float:
        """Loss of predicting the mean; 0 of samples that stay in their file."""
        if samples.memory is not None:
            return 0.0
        some = samples.take(torch.arange(min(len(samples), _UNIT_SAMPLES)).numpy())
        truth = torch.from_numpy(some.known_targets)
        with torch.no_grad():
            return abs(float(self._loss(torch.zeros_like(truth), truth, torch.ones(1, len(samples.sites)))))

    def _loss(self, reconstructed: Tensor, truth: Tensor, mask: Tensor) -> Tensor:
        value: Tensor = self.get_submodule("loss")(reconstructed, truth, mask)
        return value

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the loss."""
        if self.loss is None:
            return super().forward(x, seen, masks, batch, generator)
        reconstructed = self.decoder(seen, masks, generator).unflatten(1, x.shape[1:])
        return {"reconstruction": self._loss(reconstructed, x, share(masks, len(x)))}


class _OwnPrediction(PredictionObjective):
    """Prediction of a target by a decoder of the user's own, or with a loss ``loss(outputs, target)``."""

    def __init__(
        self, samples: ScaledSamples, target: Target, decoder: ConditionalReconstructor | None, own: OwnParts
    ) -> None:
        super().__init__(samples, target)
        self.decoder = self.decoder if decoder is None else decoder
        self.loss = None if own.loss is None else OwnLoss(own.loss, train=own.train_loss)

    def forward(
        self, x: Tensor, seen: Tensor, masks: Tensor, batch: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the loss."""
        if self.loss is None:
            return super().forward(x, seen, masks, batch, generator)
        masks = torch.maximum(masks, self.get_buffer("existing").to(masks.dtype))
        outputs = self.decoder(seen / self.get_buffer("spread"), masks)
        given = outputs if self.is_class else outputs.squeeze(1)
        return {"prediction": self.loss(given, self.get_buffer("target")[batch])}
