"""Samples of values at sites: the data model, readers, splits, scaling, constraints, embedded data sets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
