"""The sensors of a plan as a part of its file: a header and arrays, checked before they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.core.storage import Arrays, array_of
from keyhole.data.metric import Euclidean, GreatCircle, Metric
from keyhole.data.placed_sensors import PlacedSensors, metric_at, sensor_sites
from keyhole.data.sites import Sites
from keyhole.plan.schema import Header, SensorsPart

__all__ = ["restore_sensors", "sensors_state"]

_PREFIX = "sensors."


def sensors_state(sensors: PlacedSensors) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the part of the header and the arrays from which `restore_sensors` recovers the sensors."""
    columns = sensors.coordinates
    texts = {name: column for name, column in columns.items() if column.dtype.kind not in "biuf"}
    header = {
        "names": list(sensors.names), "kinds": list(sensors.kinds), "coordinates": list(columns),
        "roles": dict(sensors.sites.roles),
        "texts": {name: [str(value) for value in column] for name, column in texts.items()},
    }  # fmt: skip
    operator, metric = sensors.operator, sensors.sites.metric
    arrays = {
        "data": np.asarray(operator.data, np.float64), "indices": np.asarray(operator.indices, np.int64),
        "indptr": np.asarray(operator.indptr, np.int64), "noise": sensors.noise, "cost": sensors.cost,
        "availability": sensors.availability, "keys": sensors.keys,
        **({"points": metric.points} if isinstance(metric, Euclidean) else {}),
        **{f"coordinates.{name}": np.asarray(columns[name]) for name in columns if name not in texts},
    }  # fmt: skip
    return header, {_PREFIX + name: array for name, array in arrays.items()}


def restore_sensors(header: Header, arrays: Arrays, domain: Sites, channels: int) -> PlacedSensors | None:
    """Return the sensors that `sensors_state` described; None where the file has none.

    Raises
    ------
    PlanError
        If names, kinds, rows or coordinates are inconsistent.
    """
    part = header.sensors
    if part is None:
        return None
    count = len(part.names)
    if len(set(part.names)) < count or len(part.kinds) != count:
        raise PlanError(f"header: sensors: {count} different names and as many kinds are needed")
    noise, cost, availability = (
        array_of(arrays, _PREFIX + name, (count,)) for name in ("noise", "cost", "availability")
    )
    if (noise < 0).any() or (cost <= 0).any() or not ((availability > 0) & (availability <= 1)).all():
        raise PlanError("the arrays 'sensors.noise', 'cost' and 'availability' hold numbers that cannot be")
    keys = array_of(arrays, _PREFIX + "keys", (count,), "iu").astype(np.int64)
    if (keys < 0).any() or len(np.unique(keys)) < count:
        raise PlanError("the array 'sensors.keys' has a sensor more than once")
    coordinates = {name: _coordinate(part, arrays, name, count) for name in part.coordinates}
    if any(name not in coordinates for name in part.roles.values()):
        raise PlanError("header: sensors.roles: a coordinate that is not there")
    operator = _operator(arrays, count, channels * len(domain))
    return PlacedSensors(
        operator=operator, noise=noise, cost=cost, availability=availability, kinds=tuple(part.kinds), keys=keys,
        sites=sensor_sites(part.names, coordinates, part.roles, _metric(arrays, operator, domain)),
    )  # fmt: skip


def _operator(arrays: Arrays, count: int, width: int) -> Any:
    """Return the rows, of which each has a weight, over as many values as the sites have."""
    from scipy.sparse import csr_array

    data = array_of(arrays, _PREFIX + "data", (None,)).astype(np.float64)
    indices = array_of(arrays, _PREFIX + "indices", (len(data),), "iu").astype(np.int64)
    indptr = array_of(arrays, _PREFIX + "indptr", (count + 1,), "iu").astype(np.int64)
    if indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 1).any():
        raise PlanError("the array 'sensors.indptr' does not give each sensor its weights")
    if ((indices < 0) | (indices >= width)).any():
        raise PlanError(f"the array 'sensors.indices' has a value that is none of the {width} of the sites")
    if not np.add.reduceat(np.abs(data), indptr[:-1]).all():
        raise PlanError("the array 'sensors.data' has a sensor without a weight")
    return csr_array((data, indices, indptr), shape=(count, width))


def _coordinate(part: SensorsPart, arrays: Arrays, name: str, count: int) -> NDArray[Any]:
    if name not in part.texts:
        return array_of(arrays, f"{_PREFIX}coordinates.{name}", (count,), "biuf")
    if len(part.texts[name]) != count:
        raise PlanError(f"header: sensors.texts.{name}: {count} are needed, and there are {len(part.texts[name])}")
    return np.array(part.texts[name], object)


def _metric(arrays: Arrays, operator: Any, domain: Sites) -> Metric:
    """Return the distances between the sensors, in the space of those between the sites."""
    if isinstance(domain.metric, Euclidean):
        points = array_of(arrays, _PREFIX + "points", (operator.shape[0], None))
        if points.shape[1] < (3 if isinstance(domain.metric, GreatCircle) else 1):
            raise PlanError(f"the array 'sensors.points' has {points.shape[1]} columns, which are too few")
        return metric_at(domain.metric, points)
    starts = operator.indptr[:-1]
    return domain.metric.take(np.asarray(operator.indices[starts] % len(domain), np.int64))
