"""Arguments of the workflows: selectors and models by name or object, number of sites, and the run; all are checked."""

from __future__ import annotations

import contextlib
import numbers
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keyhole.core.errors import InfeasibleError, KeyholeError, SettingsError, StorageError
from keyhole.core.memory import format_size
from keyhole.core.processes import is_first, processes
from keyhole.core.registry import Registry
from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.models.predictors import PREDICTORS, Predictor
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor
from keyhole.models.reconstructors.graph_ridge import GraphRidge, check_graph
from keyhole.models.reconstructors.module import ReconstructorLike, as_reconstructor
from keyhole.models.reconstructors.networks import check_two_dimensional
from keyhole.placement import SELECTORS, Selector
from keyhole.training.checkpoint import clear_states

__all__ = [
    "AUTO",
    "Methods",
    "Parts",
    "check_budget",
    "check_failures",
    "check_k",
    "check_reconstructor",
    "check_whole",
    "deadline_after",
    "make_all_parts",
    "make_model",
    "make_part",
    "make_parts",
    "make_run",
    "managed_checkpoints",
]

AUTO = "auto"
_CONVOLUTIONAL = ("resnet", "dcgan", "dense_conv")
_MODELS = ("reconstructor", "predictor")  # prefixes of the settings of models
_DEVICES = ("auto", "cpu", "cuda", "gpu", "mps")
_PRECISIONS = ("auto", "32-true", "bf16-mixed")

Methods = Sequence[str | Selector] | Mapping[str, str | Selector]


# Selectors and models -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Selector, reconstructor and predictor of one plan.

    Parameters
    ----------
    method
        Name of the selector, for the record.
    selector
        Selects the sites.
    reconstructor, predictor
        Unfitted models, or None to choose by the validation error.
    """

    method: str
    selector: Selector
    reconstructor: Reconstructor | None
    predictor: Predictor | None

    def check(self, samples: Samples, k: int | None = None) -> None:
        """Raise a SettingsError unless all parts suit the samples, and K if it is given."""
        if samples.sensors is not None and samples.memory is not None:
            raise SettingsError("sensors: data that stay where they are stored need a sensor at each site (memory=)")
        reason = self.selector.refusal(samples)
        if reason is not None:
            raise SettingsError(f"method {self.method!r}: {reason}")
        check_reconstructor(self.reconstructor, samples.sites)
        reason = None if self.reconstructor is None else self.reconstructor.refusal(samples)
        if self.reconstructor is not None and reason is not None:
            raise SettingsError(f"reconstructor {self.reconstructor.name!r}: {reason}")
        if self.predictor is not None and samples.target is None:
            raise SettingsError(f"predictor {self.predictor.name!r} requires a target")
        if samples.memory is not None:
            self._check_any_size(samples.memory)
        if k is not None:
            self._check_sizes(samples, k)

    def _check_sizes(self, samples: Samples, k: int) -> None:
        """Raise a SettingsError unless the reconstructor takes K sites beside the existing ones; groups may be many."""
        constraints = samples.constraints
        if self.reconstructor is None or (constraints is not None and constraints.grouping is not None):
            return
        existing = 0 if constraints is None else len(constraints.rules.existing)
        reason = self.reconstructor.refusal_of_sizes(samples, k + existing)
        if reason is not None:
            raise SettingsError(f"reconstructor {self.reconstructor.name!r}: {reason}")

    def check_early(self, samples: Samples) -> None:
        """Check samples that stay where they are stored before the first pass, which takes a while."""
        if samples.memory is not None:
            self.check(samples)

    def _check_any_size(self, memory: int) -> None:
        """Raise a SettingsError unless all parts take samples that stay in their file."""
        for what, part in (("method", self.selector), ("reconstructor", self.reconstructor)):
            if part is not None and not isinstance(part, str) and not part.any_size:
                raise SettingsError(
                    f"{what} {part.name!r} needs the data in memory, and they do not fit in {format_size(memory)}; "
                    "allow more (memory=, --memory), coarsen the grid, or take method auto, greedy, qr, exchange or "
                    "learned, and reconstructor ridge or optimal_interpolation"
                )


def make_parts(
    method: str | Selector,
    reconstructor: ReconstructorLike,
    predictor: str | Predictor,
    settings: Mapping[str, Any] | None = None,
) -> Parts:
    """Make the parts of a plan from names or objects.

    Parameters
    ----------
    method, reconstructor, predictor
        Registry names or objects; ``"auto"`` for the best model on validation.
    settings
        Settings of the parts that are named: of the selector by their names, of the models with a prefix, such as
        ``{"n_components": 300, "reconstructor.width": 512, "predictor.width": 64}``.

    Returns
    -------
    Parts
        Unfitted.

    Raises
    ------
    SettingsError
        If a name is unknown, or a setting is not one of its part.

    Examples
    --------
    >>> made = make_parts("greedy", "dense", "auto", {"n_components": 300, "reconstructor.width": 512})
    >>> made.selector.settings(), made.predictor
    ({'n_components': 300}, None)
    """
    of_models: dict[str, dict[str, Any]] = {model: {} for model in _MODELS}
    of_selector: dict[str, Any] = {}
    for name, value in (settings or {}).items():
        model, _, setting = name.partition(".")
        if setting and model in of_models:
            of_models[model][setting] = value
        else:
            of_selector[name] = value
    selector = make_part(SELECTORS, Selector, method, of_selector)
    return Parts(
        method if isinstance(method, str) else selector.name,
        selector,
        make_model(RECONSTRUCTORS, Reconstructor, reconstructor, of_models["reconstructor"]),
        make_model(PREDICTORS, Predictor, predictor, of_models["predictor"]),
    )


def make_all_parts(
    methods: Methods,
    reconstructor: ReconstructorLike,
    predictor: str | Predictor,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Parts]:
    """Make the parts of several plans that differ in their selector.

    Parameters
    ----------
    methods
        Registry names or objects, labelled by their names; or a mapping of labels to names or objects.
    reconstructor, predictor, settings
        As `make_parts` takes them; settings are those of the models.

    Returns
    -------
    dict
        Parts by label, in the order given.

    Raises
    ------
    SettingsError
        As `make_parts`; also if there are no methods, or two objects have the same name.
    """
    if isinstance(methods, str) or not methods:
        raise SettingsError(f"methods is empty; name at least one (a sequence or mapping, not {methods!r})")
    own = [name for name in settings or {} if name.partition(".")[0] not in _MODELS]
    if own:
        raise SettingsError(f"settings {', '.join(own)}: give the settings of selectors to objects in methods")
    labelled = methods.items() if isinstance(methods, Mapping) else [(_label(given), given) for given in methods]
    made: dict[str, Parts] = {}
    for label, given in labelled:
        if label in made and not isinstance(given, str):
            raise SettingsError(f"methods: {label!r} is there twice; give a mapping of labels to objects")
        made[label] = make_parts(given, reconstructor, predictor, settings)
    return made


def _label(method: str | Selector) -> str:
    """Return the label of a method that was given without one."""
    return method if isinstance(method, str) else str(getattr(method, "name", method))


def make_part(registry: Registry[Any], kind: type, given: Any, settings: Mapping[str, Any]) -> Any:
    """Make a part from its registry name and settings; an object is returned as it is.

    Raises
    ------
    SettingsError
        If it is neither a registered name nor of the right kind, or if settings are given besides an object.
    """
    if isinstance(given, str):
        return registry.make(given, settings)
    if not isinstance(given, kind):
        raise SettingsError(
            f"{registry.kind}={given!r}: expected a name ({', '.join(registry)}) or a {kind.__name__} object"
            f"{', or a torch.nn.Module' if kind is Reconstructor else ''}"
        )
    if settings:
        raise SettingsError(
            f"settings {', '.join(settings)}: {registry.kind} is an object; give its settings to its constructor"
        )
    return given


def make_model(registry: Registry[Any], kind: type, given: Any, settings: Mapping[str, Any]) -> Any:
    """Make a model from its name or object, as `make_part`; None for ``"auto"``, which takes no settings.

    A PyTorch module is a reconstructor too, see `ModuleReconstructor`.
    """
    if kind is Reconstructor:
        given = as_reconstructor(given)
    if given is None or given == AUTO:
        if settings:
            names = ", ".join(registry)
            raise SettingsError(
                f"settings {', '.join(settings)}: name the {registry.kind} that they are of; there are {names}"
            )
        return None
    if isinstance(given, str):
        registry.check(given, AUTO)
    return make_part(registry, kind, given, settings)


def check_reconstructor(reconstructor: Reconstructor | None, sites: Sites) -> None:
    """Raise a SettingsError unless a reconstructor supports the sites: a grid for convolutions, a graph."""
    if reconstructor is not None and reconstructor.name in _CONVOLUTIONAL:
        check_two_dimensional(sites.shape, reconstructor.name)
    if reconstructor is not None and reconstructor.name == GraphRidge.name:
        check_graph(sites.metric, reconstructor.name)


# Number of sites ------------------------------------------------------------------------------------------------------


def check_budget(k: Any, samples: Samples) -> int | None:
    """Return K as an int, or None under a cost limit; raise an InfeasibleError if it is infeasible."""
    if k is None and samples.constraints is None:
        raise InfeasibleError("k is missing: give the number of sites, or costs and a cost limit")
    if k is not None or samples.constraints is None:
        return check_k(k, samples)
    samples.constraints.check(None)
    return None


def check_whole(k: Any) -> int:
    """Return a number of sites as an int, of Python or NumPy; raise an InfeasibleError if it is none."""
    if isinstance(k, bool) or not isinstance(k, numbers.Real) or not float(k).is_integer():
        raise InfeasibleError(f"k={k!r}: expected a whole number of sites")
    return int(float(k))


def check_k(k: Any, samples: Samples) -> int:
    """Return K as an int; raise an InfeasibleError if it is infeasible."""
    count = check_whole(k)
    constraints = samples.constraints
    candidates = samples.observable if constraints is None else constraints.units()[1]
    most = int(candidates.sum())
    if constraints is not None and constraints.asked.given() and count > 0:
        constraints.check(count)
    elif not 1 <= count <= most:
        raise InfeasibleError(f"k={count} is infeasible: between 1 and {most} observable sites can be selected")
    return count


def check_failures(failures: Any, count: int) -> int:
    """Return the number of sensors that may fail; raise a SettingsError unless it is less than ``count``."""
    if isinstance(failures, bool) or not isinstance(failures, int) or not 0 <= failures < count:
        raise SettingsError(
            f"failures={failures!r}: expected a whole number from 0 to {count - 1}, less than the {count} sites"
        )
    return failures


# The run --------------------------------------------------------------------------------------------------------------


def make_run(
    *, seed: int, device: str, precision: str = "auto", compiled: bool = False, time_limit: float | None = None,
    checkpoint: str | Path | None = None, resume: bool = False, save_every: float = 15.0,
) -> Run:  # fmt: skip
    """Return the `Run` of a workflow, whose time limit starts now; parameters as in `keyhole.select`.

    Raises
    ------
    SettingsError
        For unknown names; whether the machine supports them shows when training starts.
    """
    if device not in _DEVICES:
        raise SettingsError(f"device {device!r} is unknown; expected one of {', '.join(_DEVICES)}")
    if precision not in _PRECISIONS:
        raise SettingsError(f"precision {precision!r} is unknown; expected one of {', '.join(_PRECISIONS)}")
    if not _is_number(save_every) or not save_every >= 0:
        raise SettingsError(f"save_every={save_every!r}: expected a number of seconds")
    return Run(
        seed=seed, device=device, precision=precision, compiled=compiled, deadline=deadline_after(time_limit),
        folder=None if checkpoint is None else Path(checkpoint), resume=resume, save_seconds=save_every,
    )  # fmt: skip


def deadline_after(time_limit: float | None) -> float | None:
    """Return the monotonic clock time at which a time limit that starts now ends."""
    if time_limit is None:
        return None
    if not _is_number(time_limit) or not time_limit > 0:
        raise SettingsError(f"time_limit={time_limit!r}: expected a positive number of seconds")
    if processes().count > 1:
        raise SettingsError(
            "time_limit is not supported with several processes (clocks differ); limit the steps instead"
        )
    return clock.monotonic() + float(time_limit)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


@contextlib.contextmanager
def managed_checkpoints(run: Run) -> Iterator[None]:
    """Delete checkpoints before a new run, and again if the run fails because of its input.

    Resuming would then fail again. Checkpoints of a run that was interrupted, or that ran out of disk space, are kept,
    and a run that resumes deletes nothing.
    """
    if run.folder is None or run.resume or not is_first():
        yield
        return
    clear_states(run.folder)
    try:
        yield
    except StorageError:
        raise
    except KeyholeError:
        clear_states(run.folder)
        raise
