"""Selectors, models and splits by name or object, and settings of each by name."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.data.target import Target
from keyhole.models.predictors import PREDICTORS
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import SELECTORS
from keyhole.placement.classical import QR, Greedy

QUICK = {"steps": 5, "batch_size": 16}


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    modes, factors = rng.normal(size=(3, 12)), rng.normal(size=(90, 3))
    found = kh.read(factors @ modes + 0.1 * rng.normal(size=(90, 12)))
    return found.with_target(Target.of(factors[:, 0] > 0))


def test_a_selector_object_selects_as_its_name_does(samples):
    """Its settings are those it was made with."""
    by_name = kh.select(samples, 3, method="greedy", settings={"n_components": 2}, predictor="linear")
    by_object = kh.select(samples, 3, method=Greedy(n_components=2), predictor="linear")
    assert by_object.indices.tolist() == by_name.indices.tolist()
    assert by_object.metadata["settings"] == by_name.metadata["settings"] == {"n_components": 2}
    assert by_object.metadata["method"] == "greedy"


def test_models_are_cloned_and_keep_their_settings(samples):
    """The objects given stay unfitted."""
    dense = RECONSTRUCTORS.make("dense", {"width": 8, "train": QUICK})
    network = PREDICTORS.make("network", {"width": 8, "train": QUICK})
    plan = kh.select(samples, 3, method="qr", reconstructor=dense, predictor=network)
    assert plan.reconstructor is not dense
    assert plan.predictor is not network
    assert plan.reconstructor.state()[0]["width"] == plan.predictor.state()[0]["width"] == 8
    again = kh.select(samples, 3, method="qr", reconstructor=dense, predictor=network)
    assert again.metrics == plan.metrics


def test_settings_of_models_have_a_prefix(samples):
    settings = {
        "n_components": 2,
        "reconstructor.width": 8,
        "reconstructor.train": QUICK,
        "predictor.width": 4,
        "predictor.train": QUICK,
    }
    plan = kh.select(samples, 3, method="greedy", reconstructor="dense", predictor="network", settings=settings)
    assert plan.metadata["settings"] == {"n_components": 2}
    assert plan.reconstructor.state()[0]["width"] == 8
    assert plan.predictor.state()[0]["width"] == 4


def test_a_setting_inside_a_group_has_a_name_of_its_own(samples):
    settings = {"reconstructor.train.steps": 5, "reconstructor.train": {"batch_size": 16}, "reconstructor.width": 8}
    plan = kh.select(samples, 3, method="greedy", reconstructor="dense", settings=settings)
    train = plan.reconstructor.options.train
    assert (train.steps, train.batch_size) == (5, 16)
    assert SELECTORS.make("learned", {"train.steps": 7}).options.train.steps == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"settings": {"n_component": 2}}, "method 'greedy'.* no setting 'n_component'; there are n_components"),
        ({"settings": {"model.width": 2}}, "has no setting 'model.width'"),
        ({"reconstructor": "dense", "settings": {"reconstructor.depth": 2}}, "no setting 'depth'; there are .*width"),
        ({"method": "learned", "settings": {"train.step": 2}}, "train.step: Extra inputs"),
        ({"method": "learned", "settings": {"train": 2, "train.steps": 3}}, "train and train.steps contradict"),
        (
            {"method": "learned", "settings": {"train.schedule": "no"}},
            "train.schedule: schedule 'no' is not known; there",
        ),
        ({"predictor": "network", "settings": {"predictor.depth": 2}}, "no setting 'depth'; there are .*width"),
        ({"predictor": "linear", "settings": {"predictor.width": 2}}, "has no setting 'width'; it has none"),
        ({"settings": {"reconstructor.width": 2}}, "name the reconstructor that they are of; there are ridge"),
        ({"method": QR(), "settings": {"n_components": 2}}, "method is an object; give its settings to its cons"),
        ({"method": "greedier"}, "method 'greedier' is not known; there are random"),
        ({"method": Greedy}, r"method=.*expected a name \(random, .*\) or a Selector object"),
        ({"reconstructor": 3}, "reconstructor=3: expected a name"),
        ({"predictor": QR()}, "predictor=.*expected a name .* or a Predictor object"),
    ],
)
def test_what_is_unknown_is_refused_with_what_there_is(samples, options, says):
    with pytest.raises(SettingsError, match=says):
        kh.select(samples, 3, **{"method": "greedy", **options})


def test_comparisons_and_curves_take_objects_and_labels(samples):
    """A list is labelled by names; a mapping has labels of its own."""
    field = samples.with_target(None)
    listed = kh.compare(field, 3, ["qr", Greedy(n_components=2)])
    assert {entry.method for entry in listed.entries} == {"qr", "greedy"}
    methods = {"few": Greedy(n_components=2), "many": Greedy(n_components=9), "pivoted": "qr"}
    labelled = kh.compare(field, 3, methods, reconstructor=RECONSTRUCTORS.make("ridge", {}))
    assert {row["method"] for row in labelled.rows()} == {"few", "many", "pivoted"}
    by_label = {entry.method: entry.plan for entry in labelled.entries}
    assert by_label["few"].metadata["method"] == by_label["many"].metadata["method"] == "greedy"
    assert by_label["few"].metadata["settings"] == {"n_components": 2}
    found = kh.curve(field, (2, 3), methods)
    assert found.methods == ["few", "many", "pivoted"]
    assert found.of("few")[1].sites.tolist() == by_label["few"].indices.tolist()


@pytest.mark.parametrize("run", [kh.compare, kh.curve])
def test_methods_that_cannot_be_told_apart_are_refused(samples, run):
    k = 3 if run is kh.compare else (3,)
    with pytest.raises(SettingsError, match="'greedy' is there twice; give a mapping"):
        run(samples, k, [Greedy(n_components=2), Greedy(n_components=3)])
    with pytest.raises(SettingsError, match="methods is empty"):
        run(samples, k, [])
    with pytest.raises(SettingsError, match="n_components: give the settings of selectors to objects"):
        run(samples, k, ["greedy"], settings={"n_components": 2})
    with pytest.raises(SettingsError, match=r"train\.steps: give the settings of selectors to objects"):
        run(samples, k, ["learned"], settings={"train.steps": 2})


@pytest.mark.parametrize("name", SELECTORS)
def test_every_selector_is_reported_by_name_what_it_does_not_take(name):
    with pytest.raises(SettingsError, match="no setting 'nonsense'"):
        SELECTORS.make(name, {"nonsense": 1})


@pytest.mark.parametrize("name", RECONSTRUCTORS)
def test_every_reconstructor_is_reported_by_name_what_it_does_not_take(name):
    with pytest.raises(SettingsError, match="no setting 'nonsense'"):
        RECONSTRUCTORS.make(name, {"nonsense": 1})
