"""The contract of every selector in the registry, and what the learned one promises."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.run import Event, Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.metrics import Ratio
from keyhole.placement import SELECTORS, Selection
from keyhole.placement.auto import STAGES
from keyhole.placement.scorer import Scorer
from keyhole.workflow.selection import choose_sites
from quick_selectors import QUICK, selector

TELLING = ["relevance", "forest"]


def prepared(shape=(4, 5), n=60, seed=0, channels=1, land=True, name=""):
    """Small signals; with a target for a selector that needs one."""
    rng = np.random.default_rng(seed)
    size = channels * int(np.prod(shape))
    values = rng.normal(size=(n, 5)) @ rng.normal(size=(5, size)) + 0.1 * rng.normal(size=(n, size))
    values = values.reshape(n, channels, *shape)
    if land:
        values[..., 0] = np.nan
    signals = kh.read(values, channels=1)
    if name in TELLING:
        signals = signals.with_target(Target.of(values.reshape(n, -1)[:, -1] > 0))
    return prepare(signals, None, seed=0)


CASES = {"table": {"shape": (12,)}, "field": {"shape": (4, 5)}, "channels": {"shape": (3, 4), "channels": 2}}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SELECTORS)
def test_exactly_k_distinct_observable_sites(name, case):
    """Whoever selects, on any grid."""
    parts = prepared(**CASES[case], name=name)
    if selector(name).incompatibility(parts.samples):
        pytest.skip("these signals are refused, with a reason")
    sites = choose_sites(selector(name), parts, 4, Run()).sites
    assert sites.dtype == np.int64
    assert sites.shape == (4,)
    assert len(set(sites.tolist())) == 4
    assert parts.samples.observable[sites].all()


@pytest.mark.parametrize("name", SELECTORS)
def test_all_sites_and_one_site_can_be_had(name):
    """The two ends of what K can be."""
    parts = prepared(shape=(1, 6), name=name)
    for k in (1, 5):
        assert len(set(choose_sites(selector(name), parts, k, Run()).sites.tolist())) == k


@pytest.mark.parametrize("name", SELECTORS)
def test_same_seed_same_sites_and_no_global_state(name):
    """The result depends on the seed, and torch's and numpy's global generators are as they were."""
    parts = prepared(name=name)
    before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    runs = [choose_sites(selector(name), parts, 4, Run(seed=3)).sites.tolist() for _ in range(2)]
    assert runs[0] == runs[1]
    assert torch.equal(before[0], torch.get_rng_state())
    for was, now in zip(before[1], np.random.get_state(), strict=True):  # noqa: NPY002
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("name", SELECTORS)
def test_settings_can_be_kept(name):
    """What a selector says of itself is plain enough for JSON."""
    import json

    json.dumps(selector(name).settings())


def test_unknown_method_and_settings_are_named():
    """An error that says what there is."""
    with pytest.raises(SettingsError, match="greedy"):
        SELECTORS.make("gredy", {})
    with pytest.raises(SettingsError, match="tempratur"):
        SELECTORS.make("learned", {"tempratur": 1})
    with pytest.raises(SettingsError, match="qr"):
        SELECTORS.make("qr", {"rank": 3})


@pytest.mark.parametrize("budget", ["exact", "dual", "penalty"])
@pytest.mark.parametrize("decoder", ["gaussian", "dense", "resnet"])
def test_every_budget_trains_with_every_decoder(budget, decoder):
    """All pairs run, and tell loss, expected L0 and concentration as they go."""
    events: list[Event] = []
    chosen = selector("learned", budget=budget, decoder=decoder, warm_start="none")
    selection = choose_sites(chosen, prepared(), 4, Run(callback=events.append))
    assert len(events) == 20
    assert {"loss", "expected_l0", "concentration"} <= set(events[-1].figures)
    assert {"concentration", "count"} <= set(selection.notes)


@pytest.mark.parametrize("collapse", ["marginal", "frequency", "best"])
def test_every_collapse_gives_k_sites(collapse):
    """Marginal, frequency and best of N joint samples."""
    sites = choose_sites(selector("learned", collapse=collapse), prepared(), 4, Run()).sites
    assert len(set(sites.tolist())) == 4


@pytest.mark.parametrize("distribution", ["vln", "iln", "sct"])
def test_the_learned_selector_finds_the_sites_that_matter(distribution):
    """Three sites drive all others: a law that starts without a hint learns to open just these."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(400, 3))
    values = 0.2 * rng.normal(size=(400, 12))  # what a site adds on its own cannot be rebuilt
    values[:, [2, 5, 11]] += causes
    values[:, [0, 1, 3, 4]] += 0.5 * causes[:, :1] + 0.6 * rng.normal(size=(400, 4))
    values[:, [6, 7, 8]] += 0.5 * causes[:, 1:2] + 0.6 * rng.normal(size=(400, 3))
    values[:, [9, 10]] += 0.5 * causes[:, 2:] + 0.6 * rng.normal(size=(400, 2))
    parts = prepare(kh.read(values), None, seed=0)
    settings = {
        "distribution": distribution,
        "warm_start": "none",
        "train": {"steps": 300, "batch_size": 128, "ema_decay": 0.0},
    }
    selection = choose_sites(SELECTORS.make("learned", settings), parts, 3, Run())
    assert set(selection.sites.tolist()) == {2, 5, 11}


def test_auto_scores_every_stage_and_keeps_the_simplest_of_the_best():
    """It says what each was worth, on validation and with blocks left out in turn."""
    parts = prepared(shape=(5, 6), n=100)
    selection = selector("auto", stages=STAGES).select(parts.train, 5, validation=parts.validation, run=Run())
    scorer = Scorer(parts.train, parts.validation, Run())
    scores, in_turn = selection.notes["scores"], selection.notes["blocks_in_turn"]
    assert list(scores) == ["greedy", "qr", "exchange", "learned", "kernel_exchange"]
    assert list(in_turn) == ["greedy", "qr", "exchange"]
    assert scorer(selection.sites) == pytest.approx(scores[selection.notes["chosen"]])
    rows = [row for row in selection.history if row.get("stage") == "search"]
    assert [(row["by"], row["error"]) for row in rows] == list(scores.items())
    assert [row["best"] for row in rows] == np.minimum.accumulate(list(scores.values())).tolist()
    assert all(row["seconds"] >= 0 for row in rows)


def test_auto_learns_masks_for_a_target_or_when_asked():
    parts = prepared(shape=(3, 4), n=60)
    found = selector("auto").select(parts.train, 3, validation=parts.validation, run=Run())
    assert list(found.notes["scores"]) == ["greedy", "qr", "exchange", "kernel_exchange"]


class GivenErrors:
    """In place of a scorer."""

    is_nonlinear = False

    def __init__(self, errors):
        self.errors = iter(errors)

    def error(self, sites):
        return next(self.errors)

    def in_turn(self, selectors, k, run):
        return None


@pytest.mark.parametrize(("gain", "chosen"), [(0.2, "learned"), (0.0, "greedy"), (-0.2, "greedy")])
def test_an_elaborate_stage_must_be_better_by_more_than_a_standard_error(monkeypatch, rng, gain, chosen):
    """Of the difference, sample by sample: what makes samples hard for all stages does not count."""
    hard, one = 1 + rng.exponential(size=100), np.ones(100)
    noise = 0.2 * rng.normal(size=(2, 100))
    noise -= noise.mean(axis=1, keepdims=True)
    ratios = [Ratio(hard, one), Ratio(hard + 0.01 + noise[0], one), Ratio(hard - gain + noise[1], one)]
    errors = GivenErrors(ratios)
    monkeypatch.setattr("keyhole.placement.auto.Scorer", lambda *parts, **more: errors)
    others = Selection(np.arange(5))
    monkeypatch.setattr("keyhole.placement.auto.Learned.select", lambda self, *parts, **more: others)
    parts = prepared(shape=(5, 6), n=100)
    auto = selector("auto", stages=("greedy", "qr", "learned"))
    assert auto.select(parts.train, 5, validation=parts.validation, run=Run()).notes["chosen"] == chosen


def in_time(parts):
    """Give the development part a time for each sample."""
    time = np.datetime64("2000-01") + np.arange(len(parts.development))
    return replace(parts, development=replace(parts.development, time=time))


@pytest.mark.parametrize("chosen", ["greedy", "exchange"])
def test_auto_chooses_once_more_when_validation_has_had_its_say(chosen):
    """With all but test, as the stage does by itself; exchanges go on from the sites that were found."""
    parts = in_time(prepared(shape=(5, 6), n=100))
    history = [{"stage": "search", "by": name, "seconds": 60.0} for name in ("greedy", "exchange")]
    found = Selection(np.array([0, 1, 2, 3]), history, {"chosen": chosen})
    again = selector("auto").refit(found, parts.development, Run())
    expected = {
        "greedy": choose_sites(selector("greedy"), parts, 4, Run()),
        "exchange": selector("exchange").improve(parts.development, found.sites, Run()),
    }
    np.testing.assert_array_equal(again.sites, expected[chosen].sites)
    assert again.notes == found.notes


def test_stages_beyond_the_classical_are_not_begun_when_the_time_is_up():
    parts, late = prepared(shape=(5, 6), n=100), Run(deadline=monotonic() - 1)
    found = selector("auto").select(parts.train, 4, validation=parts.validation, run=late)
    assert set(found.notes["scores"]) == {"greedy", "qr"}


@pytest.mark.parametrize("took", [{"greedy": 5.0, "exchange": 60.0}, {"greedy": 5.0, "exchange": 11.0}])
def test_a_quick_stage_chooses_once_more_even_when_the_time_is_up(took):
    """A slow one does not; what takes some seconds is quick, were it half of the search."""
    parts, late = in_time(prepared(shape=(5, 6), n=100)), Run(deadline=monotonic() - 1)
    history = [{"stage": "search", "by": name, "seconds": seconds} for name, seconds in took.items()]
    quick, slow = (Selection(np.array([0, 1, 2, 3]), history, {"chosen": name}) for name in ("greedy", "exchange"))
    assert selector("auto").refit(quick, parts.development, late) is not quick
    assert selector("auto").refit(slow, parts.development, late) is slow


def test_sites_are_scored_once(monkeypatch):
    """It takes seconds on large data, and masks often end where they began."""
    from keyhole.models.reconstructors.errors import unexplained

    calls = []
    monkeypatch.setattr(
        "keyhole.placement.scorer.unexplained", lambda *parts: calls.append(parts) or unexplained(*parts)
    )
    parts, sites = prepared(shape=(5, 6), n=100), np.arange(5)
    scorer = Scorer(parts.train, parts.validation, Run())
    assert scorer(sites) == scorer(sites[::-1])
    assert len(calls) == 2  # ridge and optimal interpolation


@pytest.mark.parametrize("chosen", ["learned", "kernel_exchange", "exchange"])
def test_what_goes_by_chance_chooses_once_more_in_a_series_if_there_is_time(chosen):
    """Samples without an order are as good as each other, and what takes long is not begun when time is short."""
    parts = prepared(shape=(5, 6), n=100)
    time = np.datetime64("2000-01") + np.arange(len(parts.development))
    series = replace(parts.development, time=time)
    found = Selection(np.array([0, 1, 2, 3]), [{"stage": "search", "by": chosen, "seconds": 60.0}], {"chosen": chosen})
    auto = selector("auto")
    assert auto.refit(found, parts.development, Run()) is found
    assert auto.refit(found, series, Run(deadline=monotonic() + 10)) is found
    again = auto.refit(found, series, Run())
    assert again is not found
    assert len(set(again.sites.tolist())) == 4


def test_a_time_limit_ends_learning():
    """A long training under a limit that is already over stops at once, with K sites."""
    settings = {"train": {"steps": 10**6, "batch_size": 16, "ema_decay": 0.0}, "n_masks": 4}
    plan = kh.select(prepared().samples, 4, method="learned", settings=settings, reconstructor="ridge", time_limit=1e-3)
    assert plan.k == 4


@pytest.mark.parametrize("decoder", ["gaussian", "dense", "resnet"])
def test_mixed_precision_trains(decoder):
    """bf16 where it is safe, full precision where a factorisation needs it."""
    settings = QUICK | {"decoder": decoder}
    plan = kh.select(
        prepared().samples, 4, method="learned", settings=settings, reconstructor="dense", precision="bf16-mixed"
    )
    assert plan.k == 4
    assert np.isfinite(plan.metrics["test"]["rmse"])


def test_a_device_that_is_not_there_is_a_settings_error():
    """The error names the device."""
    with pytest.raises(SettingsError, match="'tpu'"):
        kh.select(prepared().samples, 4, method="learned", settings=QUICK, device="tpu")


def test_the_weights_of_a_latent_may_have_a_smaller_step():
    """Every parameter of law and network is in one group; those of the latent move by their share."""
    parts = prepared()
    for name, latent in (("vln", 1), ("iln", 0)):
        chosen = SELECTORS.make(name, QUICK | {"mask_learning_rate": 0.4, "latent_learning_rate": 0.25})
        task, _ = chosen.learn(parts.train, 4, Run())
        steps = [group["lr"] for group in task.groups()]
        assert steps[1:] == [0.4, 0.1][: 1 + latent]
        assert sum(len(group["params"]) for group in task.groups()) == len(list(task.parameters()))
