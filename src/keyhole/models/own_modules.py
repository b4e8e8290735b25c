"""PyTorch modules and losses of the user's own: how they are made, checked, applied to the sites, and told apart."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from keyhole.core.errors import SettingsError
from keyhole.core.run import digest
from keyhole.data.sites import Sites
from keyhole.models.reconstructors.mask_conditional import SitesToGrid

__all__ = [
    "GridLoss", "LossLike", "ModuleLike", "OwnLoss", "SiteOutputs", "identity_of", "is_module", "load_weights",
    "loss_name", "make_module", "name_of", "outputs_of",
]  # fmt: skip

ModuleLike = nn.Module | Callable[[], nn.Module]
LossLike = nn.Module | Callable[..., Tensor]

_MORE = ("known", "mask", "weights")  # what a loss of a field may ask for, see `GridLoss`
_TRIED = 2  # samples of the batch by which shapes are checked; batch normalisation may need more than one


def is_module(given: Any) -> bool:
    """Return whether an object is a module, or a class of modules."""
    return isinstance(given, nn.Module) or (isinstance(given, type) and issubclass(given, nn.Module))


def make_module(given: ModuleLike) -> nn.Module:
    """Return a new module on the CPU in single precision: a copy of the one given, or what a function makes.

    Parameters
    ----------
    given
        A module, which is copied with its weights; or a class or function that makes one without arguments, whose
        weights follow from torch's global generator.

    Raises
    ------
    SettingsError
        It is neither, some weights are complex, or it is a TorchScript module, which cannot be copied and trained.

    Examples
    --------
    >>> make_module(lambda: nn.Linear(2, 3, dtype=torch.float64)).weight.dtype
    torch.float32
    """
    module: Any = given
    if isinstance(given, nn.Module) and not isinstance(given, torch.jit.ScriptModule):
        module = copy.deepcopy(given)
    elif not isinstance(given, nn.Module) and callable(given):
        try:
            module = given()
        except TypeError as error:
            raise SettingsError(
                f"{_shown(given)} makes no module without arguments ({error}); give a module, or a function without "
                "arguments that makes one"
            ) from error
    if not isinstance(module, nn.Module):
        raise SettingsError(f"{module!r}: expected a module of PyTorch (torch.nn.Module), or a class that makes one")
    if isinstance(module, torch.jit.ScriptModule):
        raise SettingsError(f"{_shown(given)} is a TorchScript module; give the module that it was made from")
    if any(tensor.is_complex() for tensor in [*module.parameters(), *module.buffers()]):
        raise SettingsError(f"{_shown(given)} has complex weights; keep them as real ones (torch.view_as_complex)")
    return module.cpu().float()


def name_of(given: Any) -> str:
    """Return the name of a module's class in lower case with underscores.

    Examples
    --------
    >>> name_of(nn.LazyLinear), name_of(nn.Sequential(nn.ReLU()))
    ('lazy_linear', 'sequential')
    """
    kind = type(given) if isinstance(given, nn.Module) else given
    name = getattr(kind, "__name__", type(kind).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.strip("<>")).lower()


def loss_name(loss: LossLike | None) -> str:
    """Return the name of a function, or of the class of a module; empty for None.

    Examples
    --------
    >>> loss_name(nn.functional.l1_loss), loss_name(partial(nn.functional.huber_loss, delta=2)), loss_name(None)
    ('l1_loss', 'huber_loss', '')
    """
    if loss is None:
        return ""
    if isinstance(loss, partial):
        return loss_name(loss.func)
    return str(getattr(loss, "__name__", type(loss).__name__))


def identity_of(module: nn.Module | None, loss: LossLike | None) -> str:
    """Return a text that tells a module and a loss from others, so that training resumes from its own checkpoint alone.

    Parameters
    ----------
    module
        Counts with its structure as it prints it, and with names, shapes and values of its weights.
    loss
        Counts with its qualified name, and a module like the other; a partial function with its arguments.

    Examples
    --------
    >>> identity_of(None, nn.functional.l1_loss)
    'torch.nn.functional.l1_loss'
    """
    parts = [] if module is None else [_structure(module)]
    if isinstance(loss, nn.Module):
        parts.append(_structure(loss))
    elif isinstance(loss, partial):
        parts.append(f"{identity_of(None, loss.func)} {loss.args} {loss.keywords}")
    elif loss is not None:
        named = loss if hasattr(loss, "__qualname__") else type(loss)
        parts.append(f"{named.__module__}.{named.__qualname__}")
    return " ".join(parts)


def _structure(module: nn.Module) -> str:
    state = module.state_dict()
    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in state.items())
    values = digest(*(tensor.detach().cpu().float().numpy() for tensor in state.values()))
    kind = type(module)
    return f"{kind.__module__}.{kind.__qualname__} {module!r} {shapes} {values}"


def _shown(given: Any) -> str:
    """Name of what was given, for messages."""
    return getattr(given, "__qualname__", None) or type(given).__name__


def outputs_of(module: nn.Module, inputs: Tensor, *, taken: str, needed: str) -> Tensor:
    """Apply a module to two samples of zeros, without gradients, which also sets the sizes of lazy layers.

    Parameters
    ----------
    module
        The module; left in evaluation mode.
    inputs
        One input, of which two are taken.
    taken, needed
        What the module is given, and what it must return, for messages.

    Raises
    ------
    SettingsError
        It fails, or returns no tensor of real numbers; the message has the shapes.
    """
    batch = inputs.expand(_TRIED, *inputs.shape)
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(batch)
    except Exception as error:  # whatever the user's code raises
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'without a message'}"
        raise SettingsError(f"it fails for {tuple(batch.shape)}, which is {taken} ({reason})") from error
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
        found = str(outputs.dtype) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise SettingsError(f"it returns {found} for {tuple(batch.shape)}, which is {taken}; needed is {needed}")
    return outputs


class SiteOutputs(nn.Module):
    """A module followed by what makes targets of its outputs: their values at the valid sites, times ``root``.

    Parameters
    ----------
    module
        Returns ``(N, channels * m)``, ``(N, channels, m)`` or ``(N, channels, *grid)``.
    channels
        Number of channels.
    sites
        The m valid sites.
    root
        Square root of the loss weights, ``(m,)``; None: uniform.

    Examples
    --------
    >>> whole = SiteOutputs(nn.Linear(3, 6), 1, Sites.plain((2, 3)), None)
    >>> whole.check(torch.zeros(3), "3 readings")
    >>> whole(torch.zeros(5, 3)).shape
    torch.Size([5, 6])
    """

    def __init__(self, module: nn.Module, channels: int, sites: Sites, root: NDArray[np.float32] | None) -> None:
        super().__init__()
        self.module, self.channels, self.m, self.shape = module, channels, len(sites), sites.shape
        self.grid = SitesToGrid(sites)
        self.register_buffer("root", _tensor_or_none(root), False)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs to targets, ``(N, channels * m)``."""
        outputs: Tensor = self.module(x)
        if outputs.shape[1:] == (self.channels, *self.shape):
            outputs = self.grid.pack(outputs)
        values: Tensor = outputs.reshape(len(x), self.channels, self.m)
        if self.root is not None:
            values = values * self.get_buffer("root")
        return values.flatten(1)

    def check(self, inputs: Tensor, taken: str) -> None:
        """Raise a SettingsError unless the module takes an input, returns values of the sites, and can be trained.

        Parameters
        ----------
        inputs
            One input.
        taken
            What it is, for messages.
        """
        channels, m = self.channels, self.m
        allowed = [(_TRIED, channels * m), (_TRIED, channels, m), (_TRIED, channels, *self.shape)]
        one = f"{channels} channel{'s' * (channels > 1)}"
        needed = f"{allowed[0]} ({one} x {m} sites) or {allowed[2]} ({one} on the grid), for a batch of {_TRIED}"
        found = tuple(outputs_of(self.module, inputs, taken=taken, needed=needed).shape)
        if found not in allowed:
            raise SettingsError(
                f"it returns {found} for {(_TRIED, *inputs.shape)}, which is {taken}; needed is {needed}"
            )
        if not any(parameter.requires_grad for parameter in self.module.parameters()):
            raise SettingsError("it has no parameters to train")


class OwnLoss(nn.Module):
    """A loss of the user's own, a function or a module, as one number.

    Parameters
    ----------
    loss
        Returns a number, or one for each sample. A module is copied.
    train
        Whether the parameters of a module are trained too; otherwise it stays in evaluation mode.

    Raises
    ------
    SettingsError
        The loss cannot be called, is a class of modules, or has arguments that it is not given.

    Examples
    --------
    >>> OwnLoss(lambda outputs, target: (outputs - target).abs())(torch.ones(4), torch.zeros(4))
    tensor(1.)
    """

    def __init__(self, loss: LossLike, *, train: bool = False) -> None:
        super().__init__()
        _check_loss(loss)
        self.loss = make_module(loss) if isinstance(loss, nn.Module) else loss
        self.is_fixed, self.label = isinstance(loss, nn.Module) and not train, loss_name(loss)
        if self.is_fixed:
            self.requires_grad_(False)
            self.eval()
        self.arguments = _arguments(loss)

    def train(self, mode: bool = True) -> OwnLoss:
        """Set the mode, but of a loss that is not trained."""
        return super().train(mode and not self.is_fixed)

    def forward(self, outputs: Tensor, truth: Tensor, **more: Tensor) -> Tensor:
        """Return the mean over the samples.

        Raises
        ------
        SettingsError
            The loss returns neither one number nor one for each sample.
        """
        value, n = self.loss(outputs, truth, **more), len(truth)
        is_tensor = isinstance(value, Tensor)
        if is_tensor and value.is_floating_point() and (value.numel() == 1 or value.shape == (n,)):
            return value.mean()
        found = f"a tensor of shape {tuple(value.shape)}, {value.dtype}" if is_tensor else type(value).__name__
        raise SettingsError(
            f"the loss {self.label!r} returns {found}; needed is a tensor of one real number, or of {n}"
        )


class GridLoss(nn.Module):
    """A loss of the user's own, of fields on the grid in standardised units.

    It is called as ``loss(reconstruction, truth)`` with tensors ``(N, channels, *grid)``. Both are zero where there is
    no site (land) or a value is missing. It is given more where it has arguments of these names:

    - ``known``: ``(N, channels, *grid)``, 1 where the truth is known, else 0;
    - ``mask``: ``(N, 1, *grid)``, 1 where a site is observed, else 0;
    - ``weights``: ``(1, 1, *grid)``, the loss weights, such as areas, with mean 1; 0 where there is no site.

    Parameters
    ----------
    loss
        A function or a module; see `OwnLoss`.
    sites
        The m valid sites.
    root
        Square root of the loss weights, ``(m,)``; None: uniform.
    train
        Whether the parameters of a module are trained too.

    Examples
    --------
    >>> loss = GridLoss(nn.functional.l1_loss, Sites.plain((2, 3)), None)
    >>> loss(torch.ones(4, 1, 6), torch.zeros(4, 1, 6), torch.ones(1, 6))
    tensor(1.)
    """

    def __init__(self, loss: LossLike, sites: Sites, root: NDArray[np.float32] | None, *, train: bool = False) -> None:
        super().__init__()
        self.own, self.grid = OwnLoss(loss, train=train), SitesToGrid(sites)
        self.register_buffer("root", _tensor_or_none(root), False)

    def forward(self, reconstructed: Tensor, truth: Tensor, mask: Tensor) -> Tensor:
        """Return the mean over the samples.

        Parameters
        ----------
        reconstructed, truth
            Targets, ``(N, channels, m)``; the truth is NaN where it is missing.
        mask
            ``(N, m)`` or ``(1, m)``.
        """
        known = ~truth.isnan()
        fields = [torch.where(known, field, 0.0) for field in (reconstructed, truth)]
        if self.root is not None:
            fields = [field / self.get_buffer("root") for field in fields]
        more: dict[str, Tensor] = {}
        if "known" in self.own.arguments:
            more["known"] = self.grid(known.to(truth.dtype))
        if "mask" in self.own.arguments:
            more["mask"] = self.grid(mask.unsqueeze(1)).expand(len(truth), -1, *self.grid.shape)
        if "weights" in self.own.arguments:
            root = truth.new_ones(truth.shape[2]) if self.root is None else self.get_buffer("root")
            more["weights"] = self.grid(root.square()[None, None])
        value: Tensor = self.own(*(self.grid(field) for field in fields), **more)
        return value


def _tensor_or_none(array: NDArray[np.float32] | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array.astype(np.float32))


def _check_loss(loss: Any) -> None:
    """Raise a SettingsError unless a loss can be called with two tensors, and what more it has arguments for."""
    name = loss_name(loss)
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise SettingsError(f"the loss {name!r} is a class; give an object, {name}()")
    if not callable(loss):
        raise SettingsError(f"the loss {loss!r} is no function and no module, such as torch.nn.functional.l1_loss")
    try:
        called = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except (TypeError, ValueError):  # of functions in C
        return
    try:
        called.bind(None, None, **{more: None for more in _MORE if more in called.parameters})
    except TypeError as error:
        raise SettingsError(
            f"the loss {name!r} is called as loss(reconstruction, truth), with a target as loss(outputs, target), and "
            f"for a field also with what it names of {', '.join(_MORE)}: {error}"
        ) from error


def _arguments(loss: LossLike) -> set[str]:
    """Names of the arguments of a loss, as far as they can be seen."""
    try:
        return set(inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters)
    except (TypeError, ValueError):  # of functions in C
        return set()


def load_weights(module: nn.Module, weights: dict[str, NDArray[Any]]) -> None:
    """Load the weights of a file into a module.

    Parameters
    ----------
    module
        A new module; lazy layers take the sizes of the file.
    weights
        Its state dict as arrays.

    Raises
    ------
    SettingsError
        Names, shapes or kinds of the weights are not those of the module.
    """
    own = module.state_dict(keep_vars=True)
    for name in [*own, *sorted(weights)]:
        there, here = weights.get(name), own.get(name)
        if there is None or here is None:
            where = ("the module", "the file") if there is None else ("the file", "the module")
            raise SettingsError(f"{where[0]} has weights {name!r}, and {where[1]} has none of that name")
        if is_lazy(here):
            continue
        if tuple(here.shape) != there.shape:
            raise SettingsError(
                f"{name!r} is of shape {there.shape} in the file, and {tuple(here.shape)} in the module"
            )
        if here.is_floating_point() != (there.dtype.kind == "f"):
            raise SettingsError(f"{name!r} is of type {there.dtype} in the file, and {here.dtype} in the module")
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
