"""Selectors: from samples and K to ranked sites.

A new selector is one class in one file (a subclass of `Selector`) and one line in the registry `SELECTORS`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
