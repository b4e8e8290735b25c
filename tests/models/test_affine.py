"""A linear plan as one matrix equals scaling, product and inverse scaling in turn."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole.models.reconstructors.base import flat

SOURCES = {
    "plain": lambda: kh.read(smooth(60, 4, 5)),
    "channels": lambda: kh.read(smooth(60, 4, 5, 2), channels=3),
    "months": lambda: kh.read(monthly_field()).anomalies("month"),
    "unweighted": lambda: kh.read(monthly_field()).with_weights(None),
}


@pytest.mark.parametrize("reconstructor", ["ridge", "optimal_interpolation"])
@pytest.mark.parametrize("source", SOURCES)
def test_one_product_gives_what_the_steps_give(source, reconstructor):
    signals = SOURCES[source]()
    plan = kh.select(signals, 4, method="qr", reconstructor=reconstructor)
    readings, some = (
        signals.noisy_readings(plan.indices)[:7],
        signals.time if signals.time is None else signals.time[:7],
    )
    known = plan.scaling.covariates(some, None, 7)
    steps = plan.scaling.undo(plan.reconstructor.reconstruct(plan.scaled(readings, some), known), some)
    reconstructed = plan.reconstruct_array(readings, some)
    assert reconstructed.dtype == steps.dtype
    assert reconstructed.shape == (7, signals.channels, len(signals.sites))
    np.testing.assert_allclose(reconstructed, steps, rtol=1e-4, atol=1e-4)


def test_the_matrix_has_a_row_for_each_feature_and_phase():
    signals = kh.read(monthly_field()).anomalies("month")
    plan = kh.select(signals, 4, method="qr", reconstructor="optimal_interpolation")
    covariates = plan.scaling.covariates(signals.time, None, len(signals))
    features = plan.reconstructor.features(
        flat(plan.scaled(signals.noisy_readings(plan.indices), signals.time)), covariates
    )
    matrix = plan.reconstructor.in_units(plan.scaling)
    assert matrix.shape == (features.shape[1] + 12, 18)
    assert np.isfinite(matrix[: features.shape[1]]).all()
