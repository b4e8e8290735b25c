"""`DataArray.keyhole` and `Dataset.keyhole`: sites of a field, straight from xarray.

xarray takes a second to load, so it is not loaded for this: the accessor is registered when somebody loads it.
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
    from keyhole.data.samples import Samples
    from keyhole.plan.plan import Plan
    from keyhole.workflow.curves import Curve

__all__ = ["KeyholeAccessor", "register"]

_READ = ("variable", "samples", "at")


class KeyholeAccessor:
    """What Keyhole does with a field.

    Examples
    --------
    >>> import keyhole, numpy as np, xarray as xr
    >>> field = xr.DataArray(np.random.default_rng(0).normal(size=(30, 4, 5)), dims=("time", "y", "x"))
    >>> field.keyhole.select(k=3, method="qr", reconstructor="ridge").k
    3
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    def signals(self, *, anomalies: str | None = None, **options: Any) -> Samples:
        """Give the field as signals, as `read` does; ``anomalies="month"`` takes off the monthly climatology."""
        from keyhole.data.readers import read

        found = read(self._source, **options)
        return found.anomalies_as_asked(anomalies)

    def select(self, k: int | None = None, **options: Any) -> Plan:
        """Choose sites: options of `read`, ``anomalies``, and those of `keyhole.select`."""
        from keyhole.workflow.selection import select

        return select(self.signals(**_taken_out(options)), k, **options)

    def curve(self, ks: Sequence[int], **options: Any) -> Curve:
        """Give the error against the number of sites: options of `read`, ``anomalies``, and of `keyhole.curve`."""
        from keyhole.workflow.curves import curve

        return curve(self.signals(**_taken_out(options)), ks, **options)


def register() -> None:
    """Register the accessor now if xarray is loaded, else as soon as it is."""
    if "xarray" in sys.modules:
        _register(sys.modules["xarray"])
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _register(xarray: ModuleType) -> None:
    xarray.register_dataarray_accessor("keyhole")(KeyholeAccessor)
    xarray.register_dataset_accessor("keyhole")(KeyholeAccessor)


def _taken_out(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `signals` out of all."""
    return {name: options.pop(name) for name in (*_READ, "anomalies") if name in options}


class _Watch(MetaPathFinder):
    """Waits until xarray is loaded; to be asked for it, as by those who look whether it is there, is not enough."""

    asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "xarray" or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader, self)
        return spec


class _ThenRegister(Loader):
    """Loads a module as another loader does, then registers the accessor with it; nobody need watch any more."""

    def __init__(self, loader: Loader, watch: _Watch) -> None:
        self._loader, self._watch = loader, watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register(module)
        if self._watch in sys.meta_path:
            sys.meta_path.remove(self._watch)
