"""Conversion of plan files of format 1: their header and arrays by the names of format 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

__all__ = ["upgrade"]

_PARTS = {"kriging": "optimal_interpolation", "detail": "dense_conv"}
_SETTINGS = {
    "context": "covariates",
    "waves": "n_frequencies",
    "rate": "learning_rate",
    "average": "ema_decay",
    "batch": "batch_size",
    "clip": "gradient_clip",
    "validations": "validation_steps",
}
_ARRAYS = {"bands.": "intervals.", ".waves.": ".embedding.", ".limits.": ".bounds."}


def upgrade(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Rename the entries of a file of format 1 to those of format 2; unknown ones stay as they are.

    Parameters
    ----------
    header, arrays
        Contents of the file.

    Returns
    -------
    header, arrays
        The same by the names of format 2.

    Examples
    --------
    >>> upgrade({"made": {}, "reconstructor": {"name": "kriging", "settings": {}}}, {})[0]
    {'metadata': {}, 'reconstructor': {'name': 'optimal_interpolation', 'settings': {}}}
    """
    names = {"made": "metadata", "bands": "intervals"}
    found = {names.get(name, name): value for name, value in header.items()}
    for part in ("reconstructor", "predictor"):
        if isinstance(found.get(part), dict):
            found[part] = _settings(found[part])
    if isinstance(found.get("scaling"), dict):
        found["scaling"] = {("periods" if name == "rhythms" else name): v for name, v in found["scaling"].items()}
    constraints = found["metadata"].get("constraints") if isinstance(found.get("metadata"), dict) else None
    if isinstance(constraints, dict) and "fixed" in constraints:
        renamed = {("existing" if name == "fixed" else name): value for name, value in constraints.items()}
        found["metadata"] = {**found["metadata"], "constraints": renamed}
    return found, {_array(name): array for name, array in arrays.items()}


def _settings(value: Any) -> Any:
    """Rename settings, and reconstructors named in them, at any depth."""
    if isinstance(value, dict):
        return {_SETTINGS.get(name, name): _settings(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_settings(one) for one in value]
    return _PARTS.get(value, value) if isinstance(value, str) else value


def _array(name: str) -> str:
    """Rename an array."""
    for old, new in _ARRAYS.items():
        name = name.replace(old, new)
    return name
