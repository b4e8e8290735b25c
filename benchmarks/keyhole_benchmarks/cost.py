"""What greedy selection and ridge cost on a field that stays in its file: a model, to be checked against runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from keyhole.data.values import FEWEST_ROWS, PANEL_VALUES, SUBSET_VALUES

__all__ = ["Cost", "estimate"]

_PROGRAM = 0.36 * 2**30  # bytes of the program itself
_HELD = 4  # arrays of a worker: the basis, the sum of a group, that of the group before, and its copy on the way
_ITERATIONS = 2  # passes of the subspace iteration
_GROUPS = 16  # of panels, in each pass
_RUNS = 8  # of consecutive samples, from which the iteration starts
_SINGLE, _DOUBLE = 4, 8
_ARRAYS = 6 * _DOUBLE + 8 * _SINGLE  # bytes for each value of a subset while intervals are fitted to it


@dataclass(frozen=True)
class Cost:
    """Cost of one selection.

    Parameters
    ----------
    passes
        Bytes read, divided by the bytes of the field.
    memory
        Peak bytes of the process that selects.
    worker
        Peak bytes of a dask worker with one thread.
    sent
        Bytes that dask workers send, all together.
    messages
        Number of states that they send.
    received
        Bytes that each dask worker receives.
    operations
        Additions and multiplications.
    """

    passes: float
    memory: float
    worker: float
    sent: float
    messages: int
    received: float
    operations: float


def estimate(samples: int, sites: int, k: int, *, chunk: int = 16, shuffled: bool = False) -> Cost:
    """Estimate the cost from the shape alone.

    Parameters
    ----------
    samples, sites, k
        Of the field, with one channel in single precision, and of the selection.
    chunk
        Samples that are stored together.
    shuffled
        Whether the parts are drawn at random, so that each of them touches all chunks.

    Returns
    -------
    Cost

    Examples
    --------
    >>> round(estimate(8284, 360 * 720, 50).passes, 1)
    6.5
    """
    width = max(4 * k, 200) + 20
    few = max(16, SUBSET_VALUES // sites)
    test, validation = 0.2, 0.16
    train = 1 - test - validation
    parts = [train + validation] * (2 + _ITERATIONS) + [train, validation + test]
    touched = few * chunk / samples  # if each of these samples is in a chunk of its own; by chance some share one
    subsets = 2 * (1 - math.exp(-touched) if shuffled else min(touched, test))  # calibrate and test intervals
    start = (width + _RUNS * chunk) / samples
    passes = 2 + (len(parts) if shuffled else sum(parts)) + subsets + start
    panels = 3 * _SINGLE * max(PANEL_VALUES, FEWEST_ROWS * sites)
    components = 3 * _SINGLE * sites * width + panels
    intervals = (few * _ARRAYS + _SINGLE * width + 2 * _SINGLE * (k + 1)) * sites  # with the components and two fits
    memory = _PROGRAM + _SINGLE * SUBSET_VALUES + max(components, intervals)
    sent = _GROUPS * sites * (_ITERATIONS * _SINGLE * width + 2 * _DOUBLE * (k + 1) + 8 * _DOUBLE)
    received = _ITERATIONS * _SINGLE * sites * width + 2 * _DOUBLE * sites
    worker = _PROGRAM + _HELD * _SINGLE * sites * width + panels
    operations = samples * sites * (4.0 * _ITERATIONS * width + 4 * (k + 1) + 4 * k)
    return Cost(passes, memory, worker, sent, _GROUPS * len(parts), received, operations)
