"""The one rule by which candidates are chosen: the simplest within one standard error of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from keyhole.metrics.bootstrap import Ratio, difference_error

__all__ = ["choose", "is_better", "simplest"]


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


def choose(
    validation: Sequence[Ratio], in_turn: Mapping[int, Ratio], *, is_series: bool,
    simplicity: Sequence[int] | None = None,
) -> int:  # fmt: skip
    """Return the simplest candidate within one standard error of the best, by blocks left out in turn where known.

    Those that have errors with blocks of samples left out in turn are compared by these; the one that is chosen, with
    all others on the validation samples.

    Parameters
    ----------
    validation : sequence of Ratio
        Error of each candidate over the validation samples, the simplest first.
    in_turn : mapping of int to Ratio
        Errors of some of them, by index, over all samples, each scored when its block was left out; may be empty.
    is_series, simplicity
        As in `simplest`.

    Returns
    -------
    int
        Index of the candidate.

    Examples
    --------
    >>> hard = np.random.default_rng(0).exponential(size=100)
    >>> low, high = Ratio(hard, np.ones(100)), Ratio(2 * hard, np.ones(100))
    >>> choose([low, high], {}, is_series=False), choose([low, high], {0: high, 1: low}, is_series=False)
    (0, 1)
    """
    ranks = range(len(validation)) if simplicity is None else simplicity
    among = list(range(len(validation)))
    if len(in_turn) > 1:
        scored = list(in_turn)
        best = simplest(list(in_turn.values()), is_series=is_series, simplicity=[ranks[one] for one in scored])
        among = [one for one in among if one == scored[best] or one not in in_turn]
    errors = [validation[one] for one in among]
    return among[simplest(errors, is_series=is_series, simplicity=[ranks[one] for one in among])]


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
