"""The plan: selected sites and fitted models, its file format, readings, and export of fields and sites."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
