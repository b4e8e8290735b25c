"""Keyhole: which few points must I observe so that I can reconstruct the whole?

Examples
--------
>>> import keyhole as kh
>>> field = kh.datasets.sst()
>>> plan = kh.select(field, k=25, method="qr", reconstructor="ridge")
>>> len(plan.sites)
25
"""

import os

import lazy_loader

from keyhole.xarray import register as _register_accessor

# OpenMP threads that spin while they wait make training tens of times slower as soon as anything else uses a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_register_accessor()

# The public names stand in __init__.pyi; each is imported when it is first used, so that `import keyhole` is quick.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
