"""Accessors `DataArray.keyhole` and `Dataset.keyhole`.

xarray takes a second to load, so it is not loaded here: the accessor is registered when xarray is imported.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyhole.data.climatology import Anomalies
    from keyhole.data.samples import Samples
    from keyhole.plan.plan import Plan
    from keyhole.workflow.curves import Curve

__all__ = ["KeyholeAccessor", "register"]

_READ = ("variable", "samples", "at", "groups")


class KeyholeAccessor:
    """Workflows of Keyhole on a field of xarray.

    Parameters
    ----------
    source
        DataArray or Dataset.

    Examples
    --------
    >>> import keyhole, numpy as np, xarray as xr
    >>> field = xr.DataArray(np.random.default_rng(0).normal(size=(30, 4, 5)), dims=("time", "y", "x"))
    >>> field.keyhole.select(k=3, method="qr", reconstructor="ridge").k
    3
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    def samples(self, *, anomalies: Anomalies = "auto", **options: Any) -> Samples:
        """Return the field as samples.

        Parameters
        ----------
        anomalies
            As in `Samples.anomalies`.
        options
            Options of `keyhole.read`.
        """
        from keyhole.data.readers import read

        return read(self._source, **options).anomalies_as_asked(anomalies)

    def select(self, k: int | None = None, **options: Any) -> Plan:
        """Select sites, as `keyhole.select`.

        Parameters
        ----------
        k
            Number of sites.
        options
            ``variable``, ``samples``, ``at`` and ``groups`` of `keyhole.read`; ``anomalies``; and options of
            `keyhole.select`.

        Returns
        -------
        Plan
        """
        from keyhole.workflow.selection import select

        return select(self.samples(**_pop_reading(options)), k, **options)

    def curve(self, ks: Sequence[int], **options: Any) -> Curve:
        """Compute the error against the number of sites, as `keyhole.curve`.

        Parameters
        ----------
        ks
            Numbers of sites.
        options
            ``variable``, ``samples``, ``at`` and ``groups`` of `keyhole.read`; ``anomalies``; and options of
            `keyhole.curve`.

        Returns
        -------
        Curve
        """
        from keyhole.workflow.curves import curve

        return curve(self.samples(**_pop_reading(options)), ks, **options)


def register() -> None:
    """Register the accessor now if xarray is loaded, else as soon as it is."""
    if "xarray" in sys.modules:
        _register(sys.modules["xarray"])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(xarray: ModuleType) -> None:
    xarray.register_dataarray_accessor("keyhole")(KeyholeAccessor)
    xarray.register_dataset_accessor("keyhole")(KeyholeAccessor)


def _pop_reading(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of reading from all options, and return them."""
    return {name: options.pop(name) for name in (*_READ, "anomalies") if name in options}


class _Finder(MetaPathFinder):
    """Finder that registers the accessor when xarray is executed, not when somebody only looks for it."""

    searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "xarray" or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader, self)
        return spec


class _RegisteringLoader(Loader):
    """Loader that registers the accessor after loading, and removes the finder."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
