"""Optional dependencies: what one corner of Keyhole needs, and what to do where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from keyhole.core.errors import MissingExtraError

__all__ = ["EXTRAS", "check_extra"]

# Each extra of pyproject.toml: what needs it, and the modules that it brings.
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dask": ("dask workers need", ("dask", "distributed")),
    "grib": ("GRIB files need", ("cfgrib",)),
    "maps": ("map projections need", ("cartopy",)),
    "parquet": ("Parquet files need", ("pyarrow",)),
    "sweeps": ("sweeps need", ("optuna", "sqlalchemy")),
    "tensorboard": ("TensorBoard logs need", ("tensorboard",)),
}


def check_extra(name: str) -> None:
    """Raise a MissingExtraError that names the extra, unless its modules are installed.

    Parameters
    ----------
    name : {"dask", "grib", "maps", "parquet", "sweeps", "tensorboard"}
        An extra of pyproject.toml.

    Raises
    ------
    MissingExtraError
        If a module is not installed.

    Examples
    --------
    >>> check_extra("parquet")
    """
    needs, modules = EXTRAS[name]
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingExtraError(f"{needs} {missing[0]}, which is not installed: pip install 'keyhole[{name}]'")
