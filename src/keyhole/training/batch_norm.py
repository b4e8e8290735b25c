"""Batch normalisation over the batch of all processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn

from keyhole.core.processes import Processes

__all__ = ["synchronised"]

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


@contextlib.contextmanager
def synchronised(module: nn.Module, processes: Processes) -> Iterator[None]:
    """Compute batch normalisation over the batch of all processes inside a block.

    A step of several processes is then that of one process with the whole batch, and the running statistics are the
    same in every process. `torch.nn.SyncBatchNorm` does this on GPUs alone.

    Parameters
    ----------
    module
        All its layers of batch normalisation change how they compute, not their names, parameters and buffers.
    processes
        The processes, each with a part of the batch of equal size. Nothing changes if there is only one.

    References
    ----------
    S. Ioffe and C. Szegedy. Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
    Shift. ICML 2015.

    Examples
    --------
    >>> layer = nn.BatchNorm1d(1, eps=1e-12)
    >>> with synchronised(layer, Processes()):
    ...     layer(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [-1.0, 1.0]
    """
    layers = [layer for layer in module.modules() if isinstance(layer, BatchNorm)] if processes.count > 1 else []
    for layer in layers:
        layer.forward = partial(_forward, layer, processes)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _forward(layer: BatchNorm, processes: Processes, x: Tensor) -> Tensor:
    """Normalise ``(N, channels, ...)`` by the statistics of all processes while training, else by the running ones."""
    if not layer.training:
        return type(layer).forward(layer, x)
    axes, shape = [0, *range(2, x.ndim)], (1, -1, *([1] * (x.ndim - 2)))
    mean = _mean(x.float().mean(axes), processes)
    centred = x - mean.to(x.dtype).reshape(shape)
    variance = _mean(centred.float().square().mean(axes), processes)
    _update_running(layer, mean, variance, x.numel() // x.shape[1] * processes.count)
    scale = torch.rsqrt(variance + layer.eps)
    if not layer.affine:
        return centred * scale.to(x.dtype).reshape(shape)
    scale = (scale * layer.weight).to(x.dtype)
    return centred * scale.reshape(shape) + layer.bias.to(x.dtype).reshape(shape)


@torch.no_grad()
def _update_running(layer: BatchNorm, mean: Tensor, variance: Tensor, count: int) -> None:
    """Update the running mean and variance, of ``count`` values per channel, as the layer itself does."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked.add_(1)
    weight = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean), weight)
    layer.running_var.lerp_((variance * count / max(count - 1, 1)).to(layer.running_var), weight)


def _mean(value: Tensor, processes: Processes) -> Tensor:
    """Average over the processes, with its gradient."""
    total: Tensor = _Sum.apply(value)  # type: ignore[no-untyped-call]
    return total / processes.count


class _Sum(torch.autograd.Function):
    """Sum over the processes; the gradient is summed likewise, since the sum enters the loss of each of them."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total
