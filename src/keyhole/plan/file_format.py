"""Plans as files: a header and arrays, each checked by itself and against the others.

A checksum tells that a file is whole, not that it makes sense. Everything is checked here before any of it is used, so
that a file takes no more memory than its own size calls for, and a plan that was loaded works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, KeyholeError, PlanError, SettingsError
from keyhole.core.registry import Registry
from keyhole.core.storage import Arrays, array_of, read_container, write_container
from keyhole.data.climatology import Climatology
from keyhole.data.covariates import check_periods
from keyhole.data.origin import SourceInfo
from keyhole.data.placed_sensors import PlacedSensors
from keyhole.data.scaler import Scaler
from keyhole.data.sites import Sites
from keyhole.models.intervals import PredictionIntervals
from keyhole.models.predictors import PREDICTORS, Predictor
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor
from keyhole.models.reconstructors.without_module import OWN, WithoutModule
from keyhole.plan import _format1, _format2, _format3
from keyhole.plan.domain_format import domain_state, restore_domain
from keyhole.plan.plan import Plan
from keyhole.plan.schema import Header, OriginPart, checked_header
from keyhole.plan.sensors_format import restore_sensors, sensors_state

__all__ = ["load", "load_without_modules", "save"]


_OTHER_SIZES = "the reconstructor was fitted to other sites, channels or covariates than the plan has"


class _ModuleError(Exception):
    """A network of the user's own is not given, or does not fit: the plan itself is as it should be."""


def save(plan: Plan, path: Path) -> None:
    """Write a plan to one file; see `Plan.save`."""
    settings, learned = plan.reconstructor.state()
    domain, coordinates = domain_state(plan.domain)
    header: dict[str, Any] = {
        "kind": "plan",
        **domain,
        "scaling": {
            "cycle": plan.scaling.climatology.kind if plan.scaling.climatology.needs_time else None,
            "harmonics": plan.scaling.climatology.terms,
            "periods": plan.scaling.periods,
        },
        "reconstructor": {"name": type(plan.reconstructor).name, "settings": settings},
        "origin": asdict(plan.origin),
        "metadata": dict(plan.metadata),
        "metrics": {part: dict(scores) for part, scores in plan.metrics.items()},
        "history": [dict(row) for row in plan.history],
    }
    arrays = {
        "sites.index": plan.indices,
        "sites.gain": plan.gain,
        "sites.covariance": plan.covariance,
        "sites.range": plan.ranges,
        "sites.stability": plan.stability,
        "scaling.baseline": plan.scaling.baseline,
        "scaling.scale": plan.scaling.scale,
        "scaling.columns": plan.scaling.columns,
        "scaling.root": plan.scaling.root,
        "scaling.spread": plan.scaling.spread,
        **coordinates,
    }
    arrays |= {f"reconstructor.{name}": array for name, array in learned.items()}
    if plan.sensors is not None:
        header["sensors"], rows = sensors_state(plan.sensors)
        arrays |= rows
    if plan.intervals is not None:
        header["intervals"], spread = plan.intervals.state()
        arrays |= {f"intervals.{name}": array for name, array in spread.items()}
    if plan.predictor is not None:
        settings, learned = plan.predictor.state()
        header["predictor"] = {"name": plan.predictor.name, "settings": settings}
        arrays |= {f"predictor.{name}": array for name, array in learned.items()}
    write_container(path, header, {name: array for name, array in arrays.items() if array is not None})


def load(path: str | Path, *, models: Mapping[str, Any] | None = None) -> Plan:
    """Load a plan from a file written by `Plan.save`.

    Parameters
    ----------
    path
        Plan file; files of older formats are converted.
    models
        Networks of the user's own by the name that the plan has for them, since a file holds their weights and no
        code: a module, a class or function that makes one without arguments, or a `ModuleReconstructor`, which also
        has the loss, for plans that are to be fitted again (``docs/modules.md``).

    Returns
    -------
    Plan
        The plan, which reconstructs as the saved one did.

    Raises
    ------
    PlanError
        The file is damaged, truncated, not a plan, or from a newer version.
    SettingsError
        ``models`` is no mapping.
    DataError
        The plan needs a network that ``models`` does not have, or which has other weights.

    Examples
    --------
    >>> import keyhole as kh, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "buoys.keyhole")
    >>> kh.select(kh.datasets.sst(), k=3, method="qr", reconstructor="ridge").save(path)
    >>> kh.load(path).k
    3
    """
    if models is not None and not isinstance(models, Mapping):
        raise SettingsError(
            f"models={models!r}: expected a mapping from names to networks, such as {{'mine': MyModule}}"
        )
    return _load(path, {} if models is None else models)


def load_without_modules(path: str | Path) -> Plan:
    """Load a plan for its sites and its record; a network of the user's own is not needed, and cannot reconstruct.

    Parameters
    ----------
    path
        Plan file.

    Returns
    -------
    Plan
        As from `load`, but for the reconstructor.
    """
    return _load(path, None)


def _load(path: str | Path, models: Mapping[str, Any] | None) -> Plan:
    """Load a plan, with the networks of the user's own unless these are None."""
    header, arrays = read_container(Path(path), "plan")
    try:
        for version, upgrade in ((1, _format1.upgrade), (2, _format2.upgrade), (3, _format3.upgrade)):
            if header["format"] <= version:
                header, arrays = upgrade(header, arrays)
        return _unpack(header, arrays, models, str(path))
    except _ModuleError as error:
        raise DataError(str(error)) from error.__cause__
    except Exception as error:  # components may raise anything on invalid headers and arrays
        reason = str(error) if isinstance(error, KeyholeError) else f"{type(error).__name__}: {error}"
        raise PlanError(f"{path}: not a plan that this Keyhole understands ({reason})") from error


def _unpack(given: Mapping[str, Any], arrays: Arrays, models: Mapping[str, Any] | None, path: str) -> Plan:
    """Assemble a plan from its parts."""
    header = checked_header(given, arrays)
    domain = restore_domain(header, arrays)
    scaling = _scaling(header, arrays, domain)
    sensors = restore_sensors(header, arrays, domain, len(scaling.scale))
    indices = _indices(header, arrays, domain, sensors)
    k, channels = len(indices), len(scaling.scale)
    width = channels if sensors is None else 1
    numbers = domain.number(indices) if sensors is None else sensors.home(len(domain))
    return Plan(
        domain=domain,
        indices=indices,
        scaling=scaling,
        reconstructor=_reconstructor(header, arrays, domain, numbers, scaling, width, models, path),
        origin=_origin(header, domain, channels),
        predictor=_predictor(header, arrays, k * width),
        covariance=_covariance(arrays, k * width),
        intervals=_intervals(header, arrays, k * width, channels * len(domain)),
        gain=array_of(arrays, "sites.gain", (k,)),
        metadata=dict(given["metadata"]),
        metrics=header.metrics,
        history=list(given["history"]),
        ranges=array_of(arrays, "sites.range", (2, k, width)) if "sites.range" in arrays else None,
        stability=array_of(arrays, "sites.stability", (k,)) if "sites.stability" in arrays else None,
        sensors=sensors,
    )


def _indices(header: Header, arrays: Arrays, domain: Sites, sensors: PlacedSensors | None) -> NDArray[np.int64]:
    """Return the positions of the selected sites in the data, different ones that are valid; of sensors their keys."""
    indices = array_of(arrays, "sites.index", (None,), "iu")
    if not len(indices):
        raise PlanError("the array 'sites.index' has no site")
    if sensors is not None:
        if not np.array_equal(indices, sensors.keys):
            raise PlanError("the arrays 'sites.index' and 'sensors.keys' are of different sensors")
        return indices.astype(np.int64)
    within = (indices >= 0) & (indices < domain.size)
    invalid = indices[~within] if not within.all() else indices[domain.number(indices.astype(np.int64)) < 0]
    if len(invalid):
        raise PlanError(f"the array 'sites.index' has the site {invalid[0]}, which is not a valid one of the data")
    if len(np.unique(indices)) < len(indices):
        raise PlanError("the array 'sites.index' has a site more than once")
    groups = header.metadata.constraints.groups
    if groups is not None and len(groups) != len(indices):
        raise PlanError(f"header: metadata.constraints.groups: {len(indices)} are needed, one for each site")
    return indices.astype(np.int64)


def _scaling(header: Header, arrays: Arrays, domain: Sites) -> Scaler:
    """Return the scaling, whose scales are positive."""
    climatology = _climatology(header)
    scale = array_of(arrays, "scaling.scale", (None,))
    baseline = array_of(arrays, "scaling.baseline", (climatology.n_columns, len(scale), len(domain)))
    columns = array_of({"scaling.columns": np.zeros((2, 0)), **arrays}, "scaling.columns", (2, None))
    root = array_of(arrays, "scaling.root", (len(domain),)) if "scaling.root" in arrays else None
    spread = array_of(arrays, "scaling.spread", (len(domain),)) if "scaling.spread" in arrays else None
    given = {"root": np.ones(1) if root is None else root, "spread": np.ones(1) if spread is None else spread}
    for name, positive in {"scale": scale, "columns": columns[1], **given}.items():
        if not (positive > 0).all():
            raise PlanError(f"the array 'scaling.{name}' holds numbers that are not positive")
    if not len(scale):
        raise PlanError("the array 'scaling.scale' is empty")
    periods = check_periods(header.scaling.periods)
    return Scaler(baseline, scale.astype(np.float64), climatology, periods, columns.astype(np.float64), root, spread)


def _climatology(header: Header) -> Climatology:
    """Return the climatology; the first term of harmonics is constant, and no two are the same."""
    part = header.scaling
    terms = tuple((year, day) for year, day in part.harmonics)
    if bool(terms) != (part.cycle == "harmonics") or (terms and terms[0] != (0, 0)) or len(set(terms)) < len(terms):
        raise PlanError(f"header: scaling.harmonics: {list(terms)} are no harmonics of year and day with a constant")
    return Climatology(part.cycle or "none", terms)


def _origin(header: Header, domain: Sites, channels: int) -> SourceInfo:
    """Return the type and attributes of the data, in which reconstructions can be returned."""
    origin, axes = header.origin, len(domain.shape) + 2
    if origin.channel_axis is not None and not -axes <= origin.channel_axis < axes:
        raise PlanError(f"header: origin.channel_axis: {origin.channel_axis} is no axis of {axes}")
    if origin.variables and len(origin.variables) != channels:
        raise PlanError(f"header: origin.variables: {channels} are needed, and there are {len(origin.variables)}")
    if origin.kind == "table" and channels > 1:
        raise PlanError(f"header: origin.kind: a table has one channel, not {channels}")
    if origin.kind == "field":
        names = [origin.sample_dim, *(origin.variables or [origin.name]), *domain.dims, *domain.auxiliary]
        _check_different(names, channels, origin)
    columns = None if origin.columns is None else origin.columns.restore()
    if columns is not None and len(columns.names) != domain.size:
        raise PlanError(f"header: origin.columns: {domain.size} encoded columns are needed, not {len(columns.names)}")
    return SourceInfo(**origin.model_dump() | {"columns": columns})


def _check_different(names: list[str], channels: int, origin: OriginPart) -> None:
    """Names of dimensions and variables share one space in a Dataset."""
    names = [*names, "channel"] if channels > 1 and not origin.variables else names
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise PlanError(f"header: origin: {repeated[0]!r} is the name of two things: samples, variables or axes")


def _check_installed(registry: Registry[Any], name: str) -> None:
    """Raise a PlanError unless a model is registered, by Keyhole or by another package."""
    if name not in registry:
        raise PlanError(
            f"{registry.kind} {name!r} is not known; install the package that provides it (entry points "
            f"{registry.group!r}), or a newer Keyhole"
        )


def _reconstructor(
    header: Header, arrays: Arrays, domain: Sites, numbers: NDArray[np.int64], scaling: Scaler, width: int,
    models: Mapping[str, Any] | None, path: str,
) -> Reconstructor:  # fmt: skip
    """Return the reconstructor, fitted to as many sites, channels and covariates as the plan has."""
    settings, learned = header.reconstructor.settings, _under("reconstructor.", arrays)
    channels, covariates = len(scaling.scale), 2 * len(scaling.periods) + scaling.columns.shape[1]
    if header.reconstructor.name == OWN:
        if [settings["channels"], settings["covariates"]] != [channels, covariates]:
            raise PlanError(_OTHER_SIZES)
        made = _own_module(settings, learned, domain, numbers, models, path)
    else:
        _check_installed(RECONSTRUCTORS, header.reconstructor.name)
        made = RECONSTRUCTORS[header.reconstructor.name].restore(settings, learned, domain, numbers)
    if width == channels:
        suits = made.takes(len(numbers), channels, covariates)
    else:
        suits = made.takes_readings(len(numbers) * width, channels, covariates)
    if not suits:
        raise PlanError(_OTHER_SIZES)
    return made


def _own_module(
    settings: Mapping[str, Any], arrays: Arrays, domain: Sites, numbers: NDArray[np.int64],
    models: Mapping[str, Any] | None, path: str,
) -> Reconstructor:  # fmt: skip
    """Return a network of the user's own with the weights of the file; without it, what refuses to reconstruct."""
    name = str(settings["name"])
    missing = (
        f"{path}: the plan reconstructs by a network of the user's own, {name!r}, of which a file holds the weights "
        f"and no code; give it the network: kh.load({path!r}, models={{{name!r}: MyModule}})"
    )
    if models is None:
        return WithoutModule(name, missing)
    if name not in models:
        given = f", and not {', '.join(map(repr, models))}" if models else ""
        raise _ModuleError(missing + given)
    from keyhole.models.reconstructors.module import ModuleReconstructor

    try:
        return ModuleReconstructor.restore(settings, arrays, domain, numbers, model=models[name])
    except SettingsError as error:
        raise _ModuleError(f"{path}: models[{name!r}] is not the network that the plan has: {error}") from error


def _predictor(header: Header, arrays: Arrays, readings: int) -> Predictor | None:
    """Return the predictor and check that its errors are in the metrics; files older than targets have none."""
    if header.predictor is None:
        return None
    _check_installed(PREDICTORS, header.predictor.name)
    made = PREDICTORS[header.predictor.name].restore(header.predictor.settings, _under("predictor.", arrays))
    if len(made.readings.mean) != readings:
        raise PlanError(f"the predictor takes {len(made.readings.mean)} readings, and the plan has {readings}")
    needed = {"target_error", "target_log_loss"} if made.is_class else {"target_rmse", "target_fvu"}
    for part, scores in header.metrics.items():
        if not needed <= set(scores):
            raise PlanError(f"header: metrics.{part}: {sorted(needed - set(scores))[0]} is missing")
    return made


def _covariance(arrays: Arrays, readings: int) -> NDArray[np.float64] | None:
    """Return the covariance of the readings; older files have none."""
    if "sites.covariance" not in arrays:
        return None
    found = array_of(arrays, "sites.covariance", (readings, readings))
    if (np.diagonal(found) < 0).any():
        raise PlanError("the array 'sites.covariance' has a negative variance")
    return found.astype(np.float64, copy=False)


def _intervals(header: Header, arrays: Arrays, readings: int, outputs: int) -> PredictionIntervals | None:
    """Return the prediction intervals, for as many readings and outputs as the plan has."""
    if header.intervals is None:
        return None
    made = PredictionIntervals.restore(header.intervals.model_dump(), _under("intervals.", arrays))
    if not made.takes(readings, outputs):
        raise PlanError("the prediction intervals are for other sites or channels than the plan has")
    return made


def _under(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
