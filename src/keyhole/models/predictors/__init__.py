"""Predictors: from readings to a target. A new one is one class in one file, and one line in the registry."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
