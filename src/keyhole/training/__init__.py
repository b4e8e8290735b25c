"""The training loop, on lightning-fabric, with checkpoints from which training resumes bit for bit.

Subclass `keyhole.training.loop.Task` for the model and its loss, and call `keyhole.training.loop.train`. The settings
are `TrainSettings`, the checkpoints in `keyhole.training.checkpoint`. A `Callback` follows a training, and may end it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
