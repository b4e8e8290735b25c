"""The rule of one standard error: the simplest candidate that is not clearly worse than the best."""

from __future__ import annotations

import numpy as np
import pytest

from keyhole.metrics import Ratio, difference_error, is_better, simplest
from keyhole.metrics.trials import Trials


def candidates(rng, *means: float, n: int = 200, noise: float = 0.1) -> list[Ratio]:
    """Errors that differ by some means, and by noise of mean zero; all find the same samples hard."""
    hard = 10 * rng.exponential(size=n)
    own = noise * rng.normal(size=(len(means), n))
    own -= own.mean(axis=1, keepdims=True)
    return [Ratio(hard + mean + part, np.ones(n)) for mean, part in zip(means, own, strict=True)]


@pytest.mark.parametrize(
    ("means", "chosen"), [((0, 0, 0), 0), ((0.005, 0, 0), 0), ((0.03, 0.005, 0), 1), ((2, 1, 0), 2)]
)
def test_the_first_within_one_standard_error_of_the_best_is_chosen(rng, means, chosen):
    """Of a difference of two candidates it is 0.01 here, and of each error 0.7."""
    errors = candidates(rng, *means)
    assert difference_error(errors[0], errors[2], is_series=False) == pytest.approx(0.01, rel=0.15)
    assert simplest(errors, is_series=False) == chosen


def test_of_equally_simple_candidates_the_best_is_chosen(rng):
    errors = candidates(rng, 0.005, 0.004, 0.0)
    assert simplest(errors, is_series=False, simplicity=[1, 1, 2]) == 1
    assert simplest(errors, is_series=False, simplicity=[2, 1, 0]) == 2


def test_without_a_standard_error_the_best_is_chosen():
    """Of one sample there is none; and what is no number is never the best."""
    errors = [Ratio(np.array([value]), np.ones(1)) for value in (np.nan, 1.0, 0.999, np.nan)]
    assert simplest(errors, is_series=False) == 2
    assert is_better(errors[1], errors[0], is_series=False)
    assert not is_better(errors[0], errors[1], is_series=False)


def test_trials_keep_a_history_and_choose_by_the_rule(rng):
    errors = candidates(rng, 0.005, 0.0)
    trials = Trials("fit", score=lambda number: errors[number], is_series=False)
    for number in range(2):
        trials.run(lambda number=number: number, str(number))
    assert trials.best.name == "1"
    assert trials.simplest().name == "0"
    assert trials.simplest(trials.tried[1:]).name == "1"
    assert [row["by"] for row in trials.history] == ["0", "1"]
    assert trials.history[1]["best"] == errors[1].value
