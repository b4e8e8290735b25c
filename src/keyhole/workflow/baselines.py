"""What is known without sensors of the parts of prepared samples, fitted once for all plans."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from keyhole.data.climatology import Climatology
from keyhole.data.climatology_choice import calendar_of
from keyhole.data.observed import ObservedSamples
from keyhole.data.preparation import PreparedSamples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics.baselines import Baselines, EigenBasis
from keyhole.models.principal_components import principal_components

__all__ = ["baselines_of"]

_FEWEST_SAMPLES = 1000  # that components are computed from, evenly spaced, where there are more
_SAMPLES_PER_COMPONENT = 4
_CALENDARS: WeakKeyDictionary[PreparedSamples, Climatology | None] = WeakKeyDictionary()
_FITTED: WeakKeyDictionary[PreparedSamples, dict[str, Baselines]] = WeakKeyDictionary()
_COMPONENTS: WeakKeyDictionary[ScaledSamples, dict[int, EigenBasis]] = WeakKeyDictionary()


def baselines_of(prepared: PreparedSamples, part: str, readings: int) -> Baselines:
    """Return the baselines of a part of the samples.

    Parameters
    ----------
    prepared
        The split and scaled samples.
    part : {"validation", "test"}
        They are fitted to the training part, or for ``"test"`` to training and validation parts.
    readings
        Number of readings of each sample, which is that of the principal components.

    Returns
    -------
    Baselines
        Without calendar and principal components where the samples stay in their file.
    """
    fitted = _FITTED.setdefault(prepared, {})
    on_train = part == "validation"
    if part not in fitted:
        train = prepared.split.train if on_train else prepared.split.development
        scaler = prepared.choosing if on_train else prepared.scaling
        fitted[part] = Baselines.of(prepared.samples, train, scaler, _calendar(prepared))
    if prepared.samples.memory is not None:
        return fitted[part]
    scaled = prepared.train if on_train else prepared.development
    return replace(fitted[part], components=_components(scaled, readings))


def _calendar(prepared: PreparedSamples) -> Climatology | None:
    """Harmonics that the training samples resolve; of samples that stay in their file those of their climatology."""
    if prepared.samples.memory is not None:
        climatology = prepared.samples.climatology
        return climatology if climatology.kind == "harmonics" else None
    if prepared not in _CALENDARS:
        _CALENDARS[prepared] = calendar_of(prepared.samples, prepared.split.train)
    return _CALENDARS[prepared]


def _components(scaled: ScaledSamples, count: int) -> EigenBasis:
    """Leading principal components of scaled samples, or of some of them where there are many."""
    known = _COMPONENTS.setdefault(scaled, {})
    if count not in known:
        field = scaled.field if isinstance(scaled, ObservedSamples) else scaled
        most = max(_FEWEST_SAMPLES, _SAMPLES_PER_COMPONENT * count)
        if len(field) > most:
            field = field.take(np.linspace(0, len(field) - 1, most).astype(np.int64))
        found = principal_components(field, count)
        known[count] = EigenBasis(found.basis, found.mean, scaled.imputer)
    return known[count]
