"""A network of the user's own as a reconstructor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.core.storage import array_of
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.own_modules import (
    GridLoss,
    LossLike,
    ModuleLike,
    SiteOutputs,
    identity_of,
    is_module,
    load_weights,
    loss_name,
    make_module,
    name_of,
)
from keyhole.models.reconstructors.base import Reconstructor, flat
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.networks import observed_grid
from keyhole.models.reconstructors.neural import NetworkReconstructor
from keyhole.models.reconstructors.registry import RECONSTRUCTORS
from keyhole.models.reconstructors.residual import arrays_under
from keyhole.models.reconstructors.without_module import OWN
from keyhole.models.settings import ModuleSettings
from keyhole.models.supervised_training import Batches, FixedBatches, SupervisedTask
from keyhole.training.loop import seeded
from keyhole.training.settings import TrainSettings

__all__ = ["ModuleReconstructor", "ReconstructorLike", "as_reconstructor"]

# What stands for a reconstructor in the workflows: a name, an object, or a module of the user's own.
ReconstructorLike = str | Reconstructor | nn.Module | type[nn.Module]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SIZES = ("channels", "covariates")  # stored in a file beside the settings
_WEIGHTS, _LINEAR, _ROOT = "module.", "linear.", "root"  # (prefixes of) the arrays in a file


class ModuleReconstructor(NetworkReconstructor):
    r"""A PyTorch module of the user's own, from the readings or the observed grid to the field.

    The module works in standardised units: anomalies, divided by the standard deviation of their channel. Either it
    maps the readings, :math:`(N, K \cdot channels)`, site after site; or the observed grid, :math:`(N, channels + 1,
    *grid)`, which is zero where nothing is observed, with the mask as the last channel. It returns all values at the
    m valid sites, ``(N, channels * m)``, channel after channel, or the whole grid, ``(N, channels, *grid)``, of which
    the valid sites count.
    Shapes are checked before sites are selected and again before training. It is trained like the other networks: with
    AdamW on the mean squared error or on a loss of the user's own; the weights with the smallest validation error are
    kept. `keyhole.select` takes a bare module as well, with the defaults of this class.

    Parameters
    ----------
    module
        The module, whose weights are where training starts; or a class or function that makes one without arguments,
        whose weights then follow from the seed of the run.
    name
        Name in the plan and its file, under which ``kh.load(path, models={name: module})`` expects the module again;
        by default that of its class, in lower case with underscores.
    inputs
        What the module is given: ``"readings"`` or ``"grid"``.
    mask_channel
        Whether the grid has the mask as a further channel; else an unobserved site and an observed zero look the same.
    with_covariates
        Whether the covariates follow, such as the time of year: as further inputs, or as constant channels of the grid.
    linear
        Name of a linear reconstruction, ``"ridge"`` or ``"optimal_interpolation"``, which the module is added to.
    loss
        ``loss(reconstruction, truth)``, both ``(N, channels, *grid)``, which returns a number or one for each sample; a
        function or a module. See `keyhole.models.own_modules.GridLoss` for what else it may ask for. It is also what
        validation goes by. None: the mean squared error, weighted by the loss weights, such as areas.
    train_loss
        Whether the parameters of a loss that is a module are trained too.
    train
        `TrainSettings`, or some of them as a mapping; None: by the number of samples.

    Attributes
    ----------
    trained
        The trained module.

    Raises
    ------
    SettingsError
        The name is that of one of Keyhole's reconstructors, or a setting is invalid.

    Examples
    --------
    >>> import keyhole as kh
    >>> network = ModuleReconstructor(
    ...     nn.Sequential(nn.LazyLinear(32), nn.SiLU(), nn.Linear(32, 1732)), name="mine", train={"steps": 20}
    ... )
    >>> plan = kh.select(kh.datasets.sst(), k=5, method="qr", reconstructor=network)
    >>> plan.reconstructor.name
    'mine'
    """

    name: str = OWN  # type: ignore[misc]
    settings_class = ModuleSettings
    options: ModuleSettings

    def __init__(
        self,
        module: ModuleLike,
        *,
        name: str | None = None,
        inputs: Literal["readings", "grid"] = "readings",
        mask_channel: bool = True,
        with_covariates: bool = False,
        linear: Literal["ridge", "optimal_interpolation"] | None = None,
        loss: LossLike | None = None,
        train_loss: bool = False,
        train: TrainSettings | Mapping[str, Any] | None = None,
    ) -> None:
        self.name = _checked_name(name_of(module) if name is None else name)
        super().__init__(
            inputs=inputs, mask_channel=mask_channel, with_covariates=with_covariates, linear=linear,
            train_loss=train_loss, train=train, loss=loss_name(loss),
        )  # fmt: skip
        self.module, self.loss = module, loss
        self.linear: LinearReconstructor | None = None
        self.root: NDArray[np.float32] | None = None

    def __repr__(self) -> str:
        return super().__repr__().replace("(", f"({type(self).shown(self.module)}, name={self.name!r}, ", 1)

    @staticmethod
    def shown(module: Any) -> str:
        """Return a module's class in one word."""
        return f"{type(module).__name__}(...)" if isinstance(module, nn.Module) else getattr(module, "__name__", "...")

    def clone(self) -> Self:
        """Return an unfitted object with the same module and settings."""
        given = {name: getattr(self.options, name) for name in type(self.options).model_fields if name != "loss"}
        again = type(self)(self.module, name=self.name, loss=self.loss, **given)
        again.options = self.options  # with the name of a loss that a file does not hold
        return again

    @property
    def trained(self) -> nn.Module:
        """The trained module."""
        trained: nn.Module = self.network.get_submodule("module")
        return trained

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Return why it cannot be fitted to these samples, whatever the sites; see `Reconstructor.refusal`."""
        if self.options.inputs == "grid" and samples.sensors is not None:
            return "it needs a sensor at each site, as readings are placed on the grid"
        if self.options.loss and self.loss is None:
            return (
                f"it was trained with the loss {self.options.loss!r}, which a file does not hold; give "
                f"kh.load(..., models={{{self.name!r}: ModuleReconstructor(module, loss={self.options.loss})}}), or "
                "reconstructor="
            )
        return super().refusal(samples)

    def refusal_of_sizes(self, samples: Samples, sites: int) -> str | None:
        """Return why the module does not suit so many sites, as part of a sentence; see `Reconstructor`."""
        if self.options.with_covariates:
            return None  # whose number is known once the samples are scaled
        tried = self.clone()
        tried.channels, tried.domain, tried.sites = samples.channels, samples.sites, np.arange(sites)
        try:
            with seeded(0):
                tried.build(1)
            if self.loss is not None:
                field = torch.zeros(2, samples.channels, len(samples.sites))
                GridLoss(self.loss, samples.sites, None)(field, field, torch.zeros(1, len(samples.sites)))
        except SettingsError as error:
            return str(error).removeprefix(f"reconstructor {self.name!r}: ")
        return None

    def build(self, samples: int) -> nn.Module:
        """Copy or make the module, and check its shapes."""
        try:
            return self._checked(SiteOutputs(make_module(self.module), self.channels, self.domain, self.root))
        except SettingsError as error:
            raise SettingsError(f"reconstructor {self.name!r}: {error}") from error

    def _checked(self, whole: SiteOutputs) -> SiteOutputs:
        """Return the module with its outputs; raise a SettingsError if it does not take the inputs."""
        k, channels, options = len(self.sites), self.channels, self.options
        inputs = self.inputs(torch.zeros(1, k, channels), torch.zeros(1, self.covariates), torch.zeros(1, 0))[0]
        parts = [f"{channels} channel{'s' * (channels > 1)}"]
        if options.inputs == "grid":
            parts += ["the mask"] if options.mask_channel else []
        else:
            parts.insert(0, f"{k} sites")
        parts += [f"{self.covariates} covariates"] if options.with_covariates else []
        kind = "observed grids" if options.inputs == "grid" else "readings"
        whole.check(inputs, f"a batch of {kind} ({', '.join(parts)})")
        return whole

    def inputs(self, readings: Tensor, covariates: Tensor, estimate: Tensor) -> Tensor:
        """Return the readings as vectors, or on the grid."""
        covariates = covariates if self.options.with_covariates else covariates[:, :0]
        if self.options.inputs == "readings":
            return super().inputs(readings, covariates, estimate)
        at = self.domain.index[self.sites]
        return observed_grid(readings, covariates, at, self.domain.shape, mask_channel=self.options.mask_channel)

    def fit(
        self, train: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples | None, run: Run
    ) -> Self:
        """Train the module, on what the linear part leaves if there is one; see `Reconstructor.fit`."""
        if self.options.linear is not None:
            self.linear = RECONSTRUCTORS.make(self.options.linear, {})
            scored = train if validation is None else validation
            self.linear.fit(train, sites, validation=scored, run=run)
        return self.fit_residual(self.linear, train, sites, validation=validation, run=run, stage=f"refit {self.name}")

    def refit(self, samples: ScaledSamples, sites: NDArray[np.int64], *, validation: ScaledSamples, run: Run) -> Self:
        """Train the module from its start on all samples, as long as was best; see `Model.refit`."""
        again = self.for_refit()
        if self.linear is not None:
            again.linear = self.linear.refit(samples, sites, validation=validation, run=run)
        return again.fit_residual(again.linear, samples, sites, validation=None, run=run, stage=f"final {self.name}")

    def _set_sizes(self, train: ScaledSamples, sites: NDArray[np.int64]) -> None:
        super()._set_sizes(train, sites)
        self.root = train.root

    def _task(self, batches: Batches, scored: FixedBatches | None, has_missing: bool) -> SupervisedTask:
        task = super()._task(batches, scored, has_missing)
        task.allows_bf16 = False  # a module may not be made for it
        if self.loss is not None:
            own = GridLoss(self.loss, self.domain, self.root, train=self.options.train_loss)
            mask = torch.zeros(1, len(self.domain))
            mask[0, torch.from_numpy(self.places)] = 1
            task.loss, task.has_missing = _FieldLoss(own, self.channels, mask), False
        return task

    @property
    def identity(self) -> str:
        """What tells the module and the loss from others, for checkpoints."""
        return f"{super().identity} {identity_of(self.network.get_submodule('module'), self.loss)}"

    def reconstruct(
        self, readings: NDArray[Any], covariates: NDArray[Any] | None = None, estimate: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Reconstruct by the module, and by the linear part if there is one; see `Reconstructor.reconstruct`."""
        if self.linear is not None:
            estimate = flat(self.linear.reconstruct(readings, covariates))
        return super().reconstruct(readings, covariates, estimate)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return settings, and the weights as arrays; neither the module's code nor that of the loss."""
        settings = {"name": self.name, **{size: getattr(self, size) for size in _SIZES}, **self.settings()}
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in self.network.state_dict().items()}
        if self.root is not None:
            arrays[_ROOT] = self.root
        if self.linear is not None:
            settings["linear_state"], own = self.linear.state()
            arrays |= {f"{_LINEAR}{name}": array for name, array in own.items()}
        return settings, arrays

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64],
        *, model: ModuleLike | ModuleReconstructor | None = None,
    ) -> Self:  # fmt: skip
        """Load the weights into a module; see `Reconstructor.restore`.

        Parameters
        ----------
        settings, arrays, domain, sites
            As `Reconstructor.restore` takes them.
        model
            The module, what makes it, or a `ModuleReconstructor` that has it and the loss.

        Raises
        ------
        SettingsError
            The weights do not fit the module.
        """
        module, loss = (model.module, model.loss) if isinstance(model, ModuleReconstructor) else (model, None)
        if module is None:
            raise SettingsError(f"the module {settings['name']!r} is needed (models=)")
        own = {name: value for name, value in settings.items() if name in ModuleSettings.model_fields}
        made = cls(module, name=settings["name"], **{name: value for name, value in own.items() if name != "loss"})
        made.options, made.loss = ModuleSettings(**own), loss
        made.domain, made.sites, made.places = domain, sites, sites
        made.channels, made.covariates = (int(settings[size]) for size in _SIZES)
        made.root = array_of(arrays, _ROOT, (len(domain),)).astype(np.float32) if _ROOT in arrays else None
        with seeded(0):
            whole = SiteOutputs(make_module(module), made.channels, domain, made.root)
            load_weights(whole.module, arrays_under(_WEIGHTS, arrays))
            made.network = made._checked(whole).eval()
        if made.options.linear is not None:
            kind = RECONSTRUCTORS[made.options.linear]
            fitted = kind.restore(settings["linear_state"], arrays_under(_LINEAR, arrays), domain, sites)
            made.linear = fitted  # type: ignore[assignment]
        return made

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return whether all parts were fitted to these sizes."""
        linear = self.linear is None or self.linear.takes(sites, channels, covariates)
        return linear and super().takes(sites, channels, covariates)


class _FieldLoss(nn.Module):
    """A loss on the grid, of targets as they are reconstructed, ``(N, channels * m)``."""

    def __init__(self, loss: GridLoss, channels: int, mask: Tensor) -> None:
        super().__init__()
        self.loss, self.channels = loss, channels
        self.register_buffer("mask", mask, False)

    def forward(self, reconstructed: Tensor, truth: Tensor) -> Tensor:
        """Return the mean over the samples."""
        fields = (values.reshape(len(truth), self.channels, -1) for values in (reconstructed, truth))
        value: Tensor = self.loss(*fields, self.get_buffer("mask"))
        return value


def _checked_name(name: Any) -> str:
    """Return the name; raise a SettingsError unless it can stand in files, and is none of Keyhole's."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SettingsError(f"name={name!r}: expected letters, digits, - and _, a letter first")
    if name in (*RECONSTRUCTORS, "auto", OWN):
        raise SettingsError(f"name={name!r} is that of a reconstructor of Keyhole; give the module another one (name=)")
    return name


def as_reconstructor(given: Any) -> Any:
    """Return a `ModuleReconstructor` for a module or a class of modules; anything else as it is.

    Examples
    --------
    >>> as_reconstructor(nn.Linear(5, 100)).name, as_reconstructor("ridge")
    ('linear', 'ridge')
    """
    return ModuleReconstructor(given) if is_module(given) else given
