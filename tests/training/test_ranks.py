"""Each of several processes draws its own masks, and together they make the step that one would make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rank_work

from keyhole.core.run import Run
from keyhole.masks import MASK_DISTRIBUTIONS
from keyhole.training.checkpoint import StateError
from rank_processes import in_two

SOFT = {"budget": "dual", "masks": "soft", "k_anneal": 0.5, "warm_start": "none"}
DENSE = {"decoder": "dense", "n_masks": 8}
EXACT: dict[str, dict[str, Any]] = {
    **{name: {"method": name, **DENSE} for name in MASK_DISTRIBUTIONS},
    **{f"{name}, dual and soft": {"method": name, **DENSE, **SOFT} for name in MASK_DISTRIBUTIONS},
    **{f"{name}, penalty": {"method": name, **DENSE, "budget": "penalty"} for name in MASK_DISTRIBUTIONS},
    "vln, dual and hard": {"method": "vln", **DENSE, **SOFT, "masks": "hard"},
    "vln, gaussian": {"method": "vln", "n_masks": 8, "decoder": "gaussian"},
    "vln, resnet": {"method": "vln", "n_masks": 8, "decoder": "resnet"},
    "vln, missing": {"method": "vln", **DENSE, "data": "missing"},
    "vln, target": {"method": "vln", "n_masks": 8, "data": "target"},
}
OTHERS: dict[str, dict[str, Any]] = {
    **{f"{name}, gan": {"method": name, "objective": "gan", "n_masks": 4} for name in MASK_DISTRIBUTIONS},
    "gan, dual and soft": {"method": "cgan", "n_masks": 4, **SOFT},
    "resnet without mask channel": {"method": "vln", "decoder": "resnet", "mask_channel": False},
    # Each process draws its own shift, as one process cannot for parts of its batch.
    "shifted resnet": {"method": "vln", "n_masks": 8, "decoder": "resnet", "n_phases": 4},
    "shifted gan": {"method": "cgan", "n_masks": 4, "n_phases": 1},
    "target, dual": {"method": "hnet", "data": "target", "budget": "dual", "n_masks": 3},
    "cae": {"method": "cae"},
    "cae, dcgan": {"method": "cae_distinct", "decoder": "dcgan"},
}
NETWORKS = ["dense", "resnet", "dense_conv", "dcgan"]


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.fixture(scope="module")
def trained() -> list[dict[str, tuple[Any, ...]]]:
    """What two processes train in every case, and a step of theirs beside one of one process with the draws of both."""
    return in_two(rank_work.steps, EXACT)


@pytest.mark.parametrize("name", EXACT)
def test_two_make_the_step_that_one_makes_of_their_masks(trained, name):
    """Gradients of all terms, multiplier, shift and bounds of the logits, running statistics: nothing counts twice."""
    *_, found, expected = trained[0][name]
    assert found.keys() == expected.keys()
    assert any(array.any() for part, array in expected.items() if part.startswith("gradient of distribution"))
    for part, array in expected.items():
        np.testing.assert_allclose(found[part], array, rtol=2e-4, atol=2e-6 + 1e-4 * np.abs(array).max(), err_msg=part)


def test_every_distribution_and_objective_trains_in_two_processes(trained):
    """Every weight has a gradient in every step, and both processes end with the same bits."""
    one, other = (first | second for first, second in zip(trained, in_two(rank_work.trainings, OTHERS), strict=True))
    for name, (weights, history, *_) in one.items():
        assert_same(weights, other[name][0])
        assert history == other[name][1], name
        assert len(history) > 1


def test_every_network_trains_in_two_processes():
    one, other = in_two(rank_work.models, NETWORKS)
    for name, weights in one.items():
        assert_same(weights, other[name])


def test_each_process_has_draws_and_samples_of_its_own():
    """Independent between processes and steps, the same in a second run; every sample once in an epoch."""
    (one, history), (other, same_history) = in_two(rank_work.draws, 10)
    assert history == same_history
    for kind in ("noise", "dropout"):
        drawn = np.array(one[kind] + other[kind])
        related = np.corrcoef(drawn) - np.eye(len(drawn))
        assert np.abs(related).max() < 0.35  # five standard errors; 1 where draws are shared
    first = [*one["batch"][:5], *other["batch"][:5]]
    assert sorted(np.concatenate(first).tolist()) == list(range(30))
    again = in_two(rank_work.draws, 10)[1][0]
    np.testing.assert_array_equal(again["noise"], other["noise"])
    np.testing.assert_array_equal(again["dropout"], other["dropout"])
    assert again["batch"] == other["batch"]


def test_the_loss_that_is_shown_is_that_of_both():
    (one, history), (other, _) = in_two(rank_work.draws, 1)
    means = [one["noise"][0].mean() ** 2, other["noise"][0].mean() ** 2]
    batches = np.mean(one["batch"][0] + other["batch"][0])
    assert history[-1]["loss"] == pytest.approx(np.mean(means) + 1e-3 * batches, rel=1e-5)


def test_two_that_disagree_on_their_errors_stop_together():
    """Early stopping goes by the mean error: neither waits for the other."""
    one, other = in_two(rank_work.disagreement)
    assert one == other


@pytest.mark.parametrize("name", ["vln", "simplex, dual and soft", "vln, resnet", "shifted resnet"])
def test_two_that_were_stopped_go_on_bit_for_bit(tmp_path, name):
    """A signal to either stops both after the same step."""
    for (weights, history), (found, resumed) in in_two(rank_work.resumed, {**EXACT, **OTHERS}[name], tmp_path):
        assert_same(weights, found)
        assert history == resumed


def test_a_state_of_two_is_refused_by_one(tmp_path):
    """They draw other masks."""
    in_two(rank_work.resumed, EXACT["vln"], tmp_path)
    with pytest.raises(StateError, match="made by 2 processes and there are 1 now"):
        rank_work.learned(EXACT["vln"], Run(seed=3, folder=tmp_path, resume=True))
