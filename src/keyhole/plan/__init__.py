"""The plan: chosen sites, the reconstructor fitted to them, readings in, fields out, and files of all of these."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
