"""Predictors: the contract, what each is good at, which is chosen, and how they are scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import keyhole as kh
from example_data import smooth
from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.target import Target
from keyhole.errors import DataError
from keyhole.metrics import target_scores
from keyhole.models.predictors import PREDICTORS, Linear, Network, eliminate, fit_predictor, nested_errors
from keyhole.models.predictors.base import Standardiser
from keyhole.models.predictors.linear import calibration

SITES = np.array([3, 0, 5])
BRIEF = {
    "linear": Linear,
    "network": lambda: Network(width=16, train={"steps": 60, "batch_size": 16, "ema_decay": 0.9}),
}


def told(values: np.ndarray) -> np.ndarray:
    """A number that three of the sites tell."""
    return 100 + 5 * (values[:, 3] - 2 * values[:, 0] + 0.5 * values[:, 5])


def prepared(kind: str, n: int = 120, channels: bool = False) -> PreparedSamples:
    """Noise on six sites, and a target that three of them tell."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(n, 6, 2) if channels else (n, 6))
    number = told(values[..., 0] if channels else values)
    words = np.array(["low", "mid", "high"])[np.digitize(number, (95, 105))]
    signals = kh.read(values, channels=-1 if channels else None)
    return prepare(signals.with_target(Target.of(number if kind == "number" else words, name="y")), None, 0)


def fitted(name: str, parts: PreparedSamples, seed: int = 0):
    run = Run(seed=seed, device="cpu")
    return BRIEF[name]().fit(parts.train, SITES, validation=parts.validation, run=run)


def scores(predictor, parts: PreparedSamples) -> dict[str, float]:
    test = parts.choosing.apply(parts.test)
    return target_scores(test.target, predictor.predict(test.readings(SITES)), predictor.expected)


# The contract -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["class", "number"])
@pytest.mark.parametrize("name", PREDICTORS)
def test_predictions_have_their_form_and_beat_knowing_nothing(name, kind):
    """Probabilities of the classes, or numbers in their own unit."""
    parts = prepared(kind)
    predictor = fitted(name, parts)
    values = predictor.predict(parts.validation.readings(SITES))
    if kind == "class":
        assert values.shape == (len(parts.validation), 3)
        assert predictor.classes == ("high", "low", "mid")
        np.testing.assert_allclose(values.sum(axis=1), 1)
        assert (values >= 0).all()
        assert scores(predictor, parts)["error"] < 0.35
    else:
        assert values.shape == (len(parts.validation),)
        assert 90 < values.mean() < 110
        assert scores(predictor, parts)["fvu"] < 0.3


@pytest.mark.parametrize("kind", ["class", "number"])
@pytest.mark.parametrize("name", PREDICTORS)
def test_state_makes_the_same_predictor(name, kind):
    """To the last bit, for several channels too."""
    parts = prepared(kind, channels=True)
    predictor = fitted(name, parts)
    again = PREDICTORS[name].restore(*predictor.state())
    readings = parts.validation.readings(SITES)
    assert again.predict(readings).tobytes() == predictor.predict(readings).tobytes()
    assert (again.target, again.classes, again.expected) == (predictor.target, predictor.classes, predictor.expected)


@pytest.mark.parametrize("name", PREDICTORS)
def test_the_same_seed_gives_the_same_predictor(name):
    """And where the seed matters, another gives another."""
    parts = prepared("class")
    readings = parts.validation.readings(SITES)
    first, again, other = (fitted(name, parts, seed).predict(readings) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert PREDICTORS[name].closed_form == np.array_equal(first, other)


@pytest.mark.parametrize("name", PREDICTORS)
def test_the_unit_of_a_column_does_not_matter(name):
    """A column in millionths and one in millions tell what they told before."""
    parts = prepared("number")
    factors = np.array([1e6, 1, 1, 1e-6, 1, 1], np.float32)
    other = replace(
        parts,
        train=replace(parts.train, data=parts.train.values * factors),
        validation=replace(parts.validation, data=parts.validation.values * factors),
    )
    one = fitted(name, parts).predict(parts.validation.readings(SITES))
    two = fitted(name, other).predict(other.validation.readings(SITES))
    np.testing.assert_allclose(two, one, rtol=1e-3)


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_constant_site_does_no_harm(name):
    """Not even when it reads something else later."""
    parts = prepared("number")
    for part in (parts.train, parts.validation):
        part.values[:, :, 0] = 0.1
        part.values[::2, :, 0] = np.nextafter(np.float32(0.1), np.float32(1))  # as scaling may round
    readings = parts.validation.readings(SITES)
    predictor = fitted(name, parts)
    before = predictor.predict(readings)
    readings[:, 1] += 1e-3
    np.testing.assert_allclose(predictor.predict(readings), before, atol=0.1)


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_class_that_no_training_sample_has_is_scored_all_the_same(name):
    """It is never told, and the log loss stays finite."""
    parts = prepared("class")
    parts.train.target.values[parts.train.target.values == 1] = 2
    found = scores(fitted(name, parts), parts)
    assert np.isfinite(found["log_loss"])
    assert found["error"] > 0.1


def test_without_a_target_there_is_nothing_to_predict():
    """The error says where one comes from."""
    parts = prepare(kh.read(smooth(20, 6)), None, 0)
    with pytest.raises(DataError, match=r"no target to predict; set one with Samples.with_target"):
        fitted("linear", parts)


# Linear -------------------------------------------------------------------------------------------------------------


def test_linear_predicts_what_is_linear():
    """Almost without error, since there is no noise."""
    assert scores(fitted("linear", prepared("number")), prepared("number"))["fvu"] < 1e-6


def test_the_strength_is_the_best_by_leaving_one_out():
    """Found by refitting without each sample, for strengths of every size."""
    parts, sites = prepared("number", n=40), np.arange(6)
    noise = np.random.default_rng(0).normal(scale=20, size=len(parts.train))
    train = replace(parts.train, target=Target("y", parts.train.target.values + noise))
    linear = Linear().fit(train, sites, validation=parts.validation, run=Run())
    examples = linear.examples(train, sites)

    def left_out(strength: float) -> float:
        total = 0.0
        for i in range(len(train)):
            kept = np.arange(len(train)) != i
            inputs, wanted = examples.inputs[kept].astype(float), examples.targets[kept].astype(float)
            centre, middle = inputs.mean(axis=0), wanted.mean()
            gram = (inputs - centre).T @ (inputs - centre) + strength * np.eye(6)
            weights = np.linalg.solve(gram, (inputs - centre).T @ (wanted - middle))
            total += (examples.targets[i] - middle - (examples.inputs[i] - centre) @ weights) ** 2
        return total

    assert left_out(linear.strength) <= 1.005 * min(left_out(strength) for strength in np.logspace(-4, 4, 25))
    assert left_out(linear.strength) < 0.99 * left_out(1e-4)


def test_probabilities_are_as_sharp_as_the_scores_are_right():
    """Two classes that are told apart by 1, rightly in 8 of 10 cases: odds of 4 to 1."""
    found = calibration(np.tile([0.5, -0.5], (10, 1)), np.array([0] * 8 + [1] * 2))
    assert found == pytest.approx(np.log(4), rel=1e-3)


def test_neither_sharper_nor_flatter_probabilities_have_a_smaller_log_loss():
    """On samples that were not fitted on."""
    parts = prepared("class", n=400)
    found = fitted("linear", parts).predict(parts.validation.readings(SITES))

    def log_loss(power: float) -> float:
        other = found**power / (found**power).sum(axis=1, keepdims=True)
        return target_scores(parts.validation.target, other)["log_loss"]

    assert log_loss(1.0) < min(log_loss(0.5), log_loss(2.0))


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("kind", ["class", "number"])
def test_nested_errors_are_those_of_refits(kind, channels):
    """With the first 0, 1, 2, 3 sites, by the normal equations."""
    parts = prepared(kind, channels=channels)
    errors = nested_errors(parts.train, parts.validation, SITES)
    linear = Linear().fit(parts.train, SITES, validation=parts.validation, run=Run())
    wide = 2 if channels else 1
    seen, asked = linear.examples(parts.train, SITES), linear.examples(parts.validation, SITES)
    eye = np.eye(3)
    wanted, truths = ((e.targets[:, None] if kind == "number" else eye[e.targets]).astype(float) for e in (seen, asked))
    middle = wanted.mean(axis=0)
    for count in range(4):
        inputs, others = seen.inputs[:, : count * wide].astype(float), asked.inputs[:, : count * wide].astype(float)
        gram = inputs.T @ inputs + linear.strength * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ (wanted - middle))
        assert errors[count] == pytest.approx(np.square(truths - middle - others @ weights).sum(), rel=1e-5)


# The choice ---------------------------------------------------------------------------------------------------------


def crossed(n: int = 300) -> PreparedSamples:
    """Two classes by the sign of a product, of which no single site tells anything."""
    values = np.random.default_rng(2).normal(size=(n, 6))
    return prepare(kh.read(values).with_target(Target.of(values[:, 3] * values[:, 0] > 0)), None, 0)


def test_a_network_predicts_what_no_line_does():
    """The choice takes it."""
    parts = crossed()
    chosen = fit_predictor(parts.train, SITES, validation=parts.validation, run=Run(device="cpu"))
    assert chosen.name == "network"
    assert scores(chosen, parts)["error"] < 0.2
    assert scores(fitted("linear", parts), parts)["error"] > 0.3
    assert chosen.history[-1]["validation"] < chosen.history[0]["validation"]


def test_linear_is_chosen_where_it_is_better():
    """A network that has learned nothing is no match."""
    parts = prepared("number")
    run = Run(device="cpu", deadline=0.0)
    chosen = fit_predictor(parts.train, SITES, validation=parts.validation, run=run, settings={"train": {}})
    assert chosen.name == "linear"


def test_a_network_has_the_frequencies_of_its_settings():
    """They are further inputs of its first layer, three of them and four for each."""
    parts = prepared("number")
    network = Network(width=16, n_frequencies=4, train={"steps": 2, "batch_size": 16})
    fitted_network = network.fit(parts.train, SITES, validation=parts.validation, run=Run(device="cpu"))
    assert fitted_network.state()[1]["weights.first.weight"].shape == (16, 3 * 5)


# Scores -------------------------------------------------------------------------------------------------------------


def test_scores_of_a_class():
    """The share misclassification rate, and the mean log probability of the truth; a certain mistake is finite."""
    target = Target("y", np.array([0, 1, 1, 1]), ("a", "b"))
    found = target_scores(target, np.array([[0.5, 0.5], [0.75, 0.25], [0, 1], [1, 0]]))
    assert found["error"] == 0.5
    expected = -(np.log(0.5) + np.log(0.25) + np.log(1) + np.log(1e-15)) / 4
    assert found["log_loss"] == pytest.approx(expected)


def test_scores_of_a_number():
    """Against the mean that was known before, or its own."""
    target = Target("y", np.array([0.0, 2.0]))
    assert target_scores(target, np.array([1.0, 2.0])) == {"mse": 0.5, "rmse": 0.5**0.5, "fvu": 0.5}
    assert target_scores(target, np.array([1.0, 2.0]), expected=4.0)["fvu"] == pytest.approx(1 / 20)


@pytest.mark.parametrize(("classes", "shape"), [((), (2, 1)), (("a", "b"), (2,)), (("a", "b"), (2, 3))])
def test_scores_of_another_shape_are_refused(classes, shape):
    """They are of another target."""
    with pytest.raises(DataError, match="predictions have shape"):
        target_scores(Target("y", np.array([0, 1]), classes), np.ones(shape))


def test_standard_goes_there_and_back():
    """A column that never varies is left in its unit."""
    values = np.array([[1.0, 7.0], [3.0, 7.0]])
    standard = Standardiser.fit(values)
    np.testing.assert_allclose(standard.transform(values), [[-1, 0], [1, 0]])
    np.testing.assert_allclose(standard.inverse(standard.transform(values)), values)


@pytest.mark.parametrize("channels", [1, 2])
def test_backward_elimination_is_that_of_brute_force(channels):
    """Each time the site goes without which ridge explains most of what is wanted."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(80, channels, 6))
    y = values.reshape(80, -1) @ rng.normal(size=6 * channels) + rng.normal(size=80)
    signals = kh.read(values, channels=1).with_target(Target.of(y))
    sites = np.array([4, 0, 3, 1])
    linear = Linear().fit(signals, sites, validation=signals, run=Run())
    seen = linear.examples(signals, sites)
    inputs, wanted = seen.inputs.astype(float), seen.targets - seen.targets.mean()

    def left(places):
        columns = np.concatenate([np.arange(channels) + channels * place for place in places])
        design = inputs[:, columns]
        inverse = np.linalg.inv(design.T @ design + linear.strength * np.eye(len(columns)))
        moments = design.T @ wanted
        return (wanted @ wanted - moments @ inverse @ moments) / (wanted @ wanted)

    kept = list(range(4))
    for place, share in eliminate(signals, sites, 3):
        each = {one: left([other for other in kept if other != one]) for one in kept}
        assert place == min(each, key=each.get)
        assert share == pytest.approx(each[place])
        kept.remove(place)
