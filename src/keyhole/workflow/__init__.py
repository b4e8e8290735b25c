"""Workflows from data to plans: select, compare, curve, extend, drop, sweeps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
