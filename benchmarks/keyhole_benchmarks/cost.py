"""What greedy selection and ridge cost on a field that stays in its file: a model, to be checked against runs."""

from __future__ import annotations

from dataclasses import dataclass

from keyhole.data.values import PANEL_VALUES, SUBSET_VALUES

__all__ = ["Cost", "estimate"]

_PROGRAM = 0.45 * 2**30  # bytes of the program itself
_ITERATIONS = 2  # passes of the subspace iteration
_GROUPS = 16  # of panels, in each pass
_SINGLE, _DOUBLE = 4, 8


@dataclass(frozen=True)
class Cost:
    """Cost of one selection.

    Parameters
    ----------
    passes
        Bytes read, divided by the bytes of the field.
    memory
        Peak bytes of the process, or of a dask worker.
    sent
        Bytes that dask workers send.
    operations
        Additions and multiplications.
    """

    passes: float
    memory: float
    sent: float
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
    7.5
    """
    width = max(4 * k, 200) + 20
    few = max(16, SUBSET_VALUES // sites)
    test, calibration = 0.2, min(2000, 0.08 * samples) / samples
    validation = 0.16
    train = 1 - test - calibration - validation
    parts = [train + validation] * (2 + _ITERATIONS) + [train, validation + test]
    subsets = 3 * min(few * chunk / samples, 0.2)
    passes = 2 + (len(parts) if shuffled else sum(parts)) + subsets
    components = 3 * _SINGLE * sites * width + 3 * _SINGLE * PANEL_VALUES
    intervals = (5 * _DOUBLE * few + 4 * _SINGLE * k) * sites
    memory = _PROGRAM + _SINGLE * SUBSET_VALUES + max(components, intervals)
    sent = _GROUPS * sites * (_ITERATIONS * _SINGLE * width + 2 * _DOUBLE * (k + 1) + 8 * _DOUBLE)
    operations = samples * sites * (4.0 * _ITERATIONS * width + 4 * (k + 1) + 4 * k)
    return Cost(passes, memory, sent, operations)
