"""Principal components of samples that come some at a time, and a few samples that stand for all of them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from keyhole.core.errors import SettingsError
from keyhole.core.memory import format_size
from keyhole.core.run import Event, Run
from keyhole.data.samples import ScaledSamples
from keyhole.workflow.stored.store import Part

__all__ = ["leading_components", "sketch"]

_SPARE = 20  # directions beyond those asked for, whose convergence is slow
_MOST_TURNS, _ENOUGH = 8, 1e-5  # times that samples are gone through; share of variance that moves at which it ends
_RANK_TOLERANCE = 1e-10
_HELD_SHARE = 1 / 4  # of the memory for samples that are held while the others go by
_MOST_IN_GRAM = 10_000  # samples whose inner products are decomposed
_CELLS = 8192  # whose products are added up in single precision
_COPIES = 5  # of the components that are held at a time


def leading_components(part: Part, most: int, run: Run) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Variances ``(r,)``, largest first, and basis ``(channels * m, r)`` of scaled samples, which have no mean.

    By the Gram matrix of the samples, as in memory, where it takes no more passes through them than are worth it, else
    by subspace iteration.
    """
    size = part.store.about.channels * len(part.store.about.sites)
    width = min(most + _SPARE, len(part), size)
    _check_room(part, size, width, most)
    groups = part.groups(_HELD_SHARE)
    if len(part) <= min(size, _MOST_IN_GRAM) and len(groups) <= _MOST_TURNS:
        return _by_samples(part, groups, most, run)
    return _by_turns(part, size, width, most, run)


def _by_samples(part: Part, groups: list[Part], most: int, run: Run) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """By the Gram matrix `G` of the samples: with `G / N = U diag(l) U'` the basis is `X' U / sqrt(N l)`.

    Some samples are held while those after them go by.
    """
    n, start = len(part), 0
    gram = np.zeros((n, n))
    for count, held in enumerate(groups):
        rows, place = np.concatenate(list(held.targets())), start
        for block in part.after(start).targets():
            gram[start : start + len(rows), place : place + len(block)] = _inner(rows, block)
            place += len(block)
        start += len(rows)
        run.tell(Event("principal components", count + 1, len(groups), {}))
    variances, left = np.linalg.eigh(np.triu(gram) / n, UPLO="U")
    keep = min(most, int((variances > _RANK_TOLERANCE * variances[-1]).sum()))
    variances, left = variances[::-1][:keep], left[:, ::-1][:, :keep]
    weights = torch.from_numpy((left / np.sqrt(variances * n)).astype(np.float32))
    basis, place = torch.zeros(rows.shape[1], keep), 0
    for block in part.targets():
        basis.addmm_(torch.from_numpy(block).T, weights[place : place + len(block)])
        place += len(block)
    return variances, basis.numpy()


def _inner(ones: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Inner products of rows, some cells at a time, added up in double precision."""
    steps = (slice(start, start + _CELLS) for start in range(0, ones.shape[1], _CELLS))
    return np.asarray(sum((ones[:, cells] @ others[:, cells].T).astype(np.float64) for cells in steps))


def _by_turns(
    part: Part, size: int, width: int, most: int, run: Run
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """By subspace iteration (Halko, Martinsson & Tropp, 2011).

    A basis `B` of random directions is turned to `X'X B` and made orthonormal, until the variances along it stay what
    they are. Each turn goes through the samples once.
    """
    start = run.generator("directions").standard_normal((size, width), np.float32)
    towards, variances = torch.from_numpy(start), np.zeros(width)
    for count in range(_MOST_TURNS):
        basis = torch.linalg.qr(towards)[0]
        towards = torch.zeros_like(basis)
        for block in part.targets():
            rows = torch.from_numpy(block)
            towards.addmm_(rows.T, rows @ basis)
        before = variances
        variances, turn = _along(basis, towards, len(part))
        run.tell(Event("principal components", count + 1, _MOST_TURNS, {"largest": float(variances[0])}))
        if np.abs(variances - before).sum() < _ENOUGH * variances.sum():
            break
    keep = min(most, int((variances > _RANK_TOLERANCE * variances[0]).sum()))
    return variances[:keep], (basis @ torch.from_numpy(turn[:, :keep].astype(np.float32))).numpy()


def sketch(part: Part, components: tuple[NDArray[np.float64], NDArray[np.float32]]) -> ScaledSamples:
    """Give a few samples of mean zero whose covariance is that of all, as far as these components go.

    `sqrt(n) W diag(sqrt(variances)) B'` with `n - 1` components and orthonormal columns `W` that sum to zero. What is
    made of covariances alone comes out as from all samples, which are behind it as ``source``.
    """
    variances, basis = components
    about, n = part.store.about, len(variances) + 1
    rows = (np.sqrt(n) * _balanced(n) * np.sqrt(variances)).astype(np.float32) @ basis.T
    targets = rows.reshape(n, about.channels, -1)
    plain = ScaledSamples(
        values=targets, sites=about.sites, observable=about.observable, origin=about.origin,
        constraints=about.constraints, weights=about.weights, source=part,
    )  # fmt: skip
    return plain.with_targets(targets)


def _along(basis: Tensor, product: Tensor, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances along the best directions within a basis, largest first, and how these turn it."""
    inner = (basis.T @ product).numpy().astype(np.float64) / n
    variances, turn = np.linalg.eigh((inner + inner.T) / 2)
    return variances[::-1].copy(), turn[:, ::-1].copy()


def _balanced(n: int) -> NDArray[np.float64]:
    """``(n, n - 1)`` with orthonormal columns that sum to zero (Helmert's)."""
    rows = np.tril(np.ones((n - 1, n - 1)))
    lengths = np.arange(1, n)
    matrix = np.concatenate([rows, np.zeros((n - 1, 1))], axis=1)
    matrix[np.arange(n - 1), lengths] = -lengths
    return np.asarray((matrix / np.sqrt(lengths * (lengths + 1))[:, np.newaxis]).T)


def _check_room(part: Part, size: int, width: int, most: int) -> None:
    needed, memory = 4 * _COPIES * size * width, part.store.memory
    if needed > memory:
        raise SettingsError(
            f"{most} components of {size} values need {format_size(needed)} of memory, and {format_size(memory)} are "
            "allowed; ask for fewer sites, allow more (--memory), or coarsen the grid"
        )
