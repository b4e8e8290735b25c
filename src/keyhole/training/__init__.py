"""The training loop, on lightning-fabric, with checkpoints from which training resumes bit for bit.

Subclass `keyhole.training.loop.Task` for the model and its loss, and call `keyhole.training.loop.train`. The settings
are in `keyhole.training.settings`, the checkpoints in `keyhole.training.checkpoint`.
"""
