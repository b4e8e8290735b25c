"""The one rule by which candidates are chosen: the simplest within one standard error of the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keyhole.metrics.bootstrap import Ratio, difference_error

__all__ = ["is_better", "simplest"]


def simplest(errors: Sequence[Ratio], *, is_series: bool, simplicity: Sequence[int] | None = None) -> int:
    """Return the simplest candidate whose error is within one standard error of the smallest.

    The standard error is that of the difference to the best candidate on the same samples (`difference_error`), not
    that of either error: candidates agree on which samples are hard, so that far smaller differences count.

    Parameters
    ----------
    errors : sequence of Ratio
        Error of each candidate over the same samples, the simplest first. Where there are too few samples for a
        standard error, the smallest error is chosen.
    is_series : bool
        Whether consecutive samples may be correlated.
    simplicity : sequence of int, optional
        Rank of each candidate, the simplest lowest, where they do not come in this order; of equal ones the smallest
        error is chosen.

    Returns
    -------
    int
        Index of the candidate.

    References
    ----------
    Breiman, Friedman, Olshen & Stone (1984). Classification and Regression Trees, section 3.4.3 (the rule of one
    standard error).

    Examples
    --------
    >>> hard = np.random.default_rng(0).exponential(size=100)
    >>> errors = [Ratio(hard * factor, np.ones(100)) for factor in (1.2, 1.0, 1.0)]
    >>> simplest(errors, is_series=False)
    1
    """
    ranks = range(len(errors)) if simplicity is None else simplicity
    values = np.nan_to_num([error.value for error in errors], nan=np.inf)
    best = int(np.argmin(values))
    close = [
        i for i, error in enumerate(errors) if i == best or not is_better(errors[best], error, is_series=is_series)
    ]
    return min(close, key=lambda i: (ranks[i], values[i]))


def is_better(one: Ratio, other: Ratio, *, is_series: bool) -> bool:
    """Return whether an error is smaller than another by more than one standard error of their difference.

    Parameters
    ----------
    one, other : Ratio
        Errors over the same samples.
    is_series : bool
        Whether consecutive samples may be correlated.
    """
    difference = other.value - one.value
    if not difference > 0:
        return bool(np.isfinite(one.value) and not np.isfinite(other.value))
    return not difference <= difference_error(one, other, is_series=is_series)
