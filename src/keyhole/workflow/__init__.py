"""From data to plans: select, compare, curves of error against K, changes to a network, sweeps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
