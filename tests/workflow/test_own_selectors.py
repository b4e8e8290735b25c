"""Plans of a selector of the user's own: changed as others are."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.errors import InfeasibleError
from keyhole.placement import Selection, Selector

FIELD = np.random.default_rng(0).normal(size=(60, 8)).cumsum(axis=1)


class First(Selector):
    """The first sites."""

    name = "first"

    def select(self, train, k, *, validation, run):
        return Selection(np.arange(k))


@pytest.fixture(scope="module")
def plan():
    return kh.select(FIELD, k=4, method=First(), reconstructor="ridge")


def test_it_is_dropped_from_and_fitted_again(plan):
    """Both need the name of the method alone, and keep it."""
    fewer, again = kh.drop(plan, FIELD, 1), plan.refit(FIELD)
    assert (fewer.k, again.k) == (3, 4)
    assert fewer.metadata["method"] == again.metadata["method"] == "first"


@pytest.mark.parametrize("k", [np.int64(1), 1.0])
def test_a_number_of_sites_to_drop_may_be_of_numpy(plan, k):
    """As that of sites to select."""
    assert kh.drop(plan, FIELD, k).k == 3


@pytest.mark.parametrize("k", [0, 4, 1.5, True, "one", None])
def test_a_number_that_cannot_be_dropped_is_refused(plan, k):
    """With what it is."""
    with pytest.raises(InfeasibleError, match=f"k={k!r}"):
        kh.drop(plan, FIELD, k)
