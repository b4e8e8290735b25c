"""The identity of a case: what it is made of, without the settings that have their default value.

A benchmark skips a case whose identity has a record. Settings with default values are left out of it, so that a setting
that is added later, or one that a protocol names although it has its default, does not make another case of it. A
default that changes does make another case: the value that a record holds is then no longer the default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import SELECTORS
from keyhole.training.settings import TrainSettings

__all__ = ["identify", "without_defaults"]

_SELECTOR_OF = {"ablation": "auto", "cgan": "vln"}  # benchmarks whose methods are variants of one selector
_TRAIN = "train"


def identify(words: Mapping[str, Any]) -> str:
    """Give the identity of a case: a hash over its words, without settings that have their default value.

    Parameters
    ----------
    words
        The fields of a `Case` by name, or a record, whose further fields do not count.

    Returns
    -------
    str
        16 hexadecimal digits.

    Examples
    --------
    >>> names = {"bench": "quality", "data": "sst", "protocol": "60 s", "method": "greedy", "reconstructor": "ridge"}
    >>> case = {**names, "k": 25, "seed": 0}
    >>> identify(case | {"settings": {}}) == identify(case | {"settings": {"selector": {"n_components": None}}})
    True
    """
    names = ("bench", "data", "protocol", "method", "reconstructor", "k", "seed")
    settings = without_defaults(words["bench"], words["method"], words["reconstructor"], words["settings"])
    text = json.dumps({**{name: words[name] for name in names}, "settings": settings}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_defaults(bench: str, method: str, reconstructor: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings of a case that differ from the defaults, in a form that JSON does not change.

    Parameters
    ----------
    bench, method, reconstructor
        Of the case. They decide whose defaults are meant: those of the selector for ``settings["selector"]``, those of
        the reconstructor for ``settings["reconstructor"]``, and `TrainSettings` for each ``"train"``.
    settings
        As the case has them. What belongs to none of these classes is kept, and so is a name that its class does not
        have.

    Returns
    -------
    dict
        Numbers are floats and tuples are lists. A selector or reconstructor without any setting of its own is left out;
        a ``"train"`` without any is kept, since it is not the default, which is to train by the number of samples.

    Examples
    --------
    >>> without_defaults("quality", "greedy", "ridge", {"selector": {"n_components": 8}, "rounds": 3})
    {'rounds': 3.0, 'selector': {'n_components': 8.0}}
    """
    found = _normal(settings)
    defaults = {
        "selector": lambda given: _selector_defaults(_SELECTOR_OF.get(bench, method)),
        "reconstructor": lambda given: _reconstructor_defaults(reconstructor, str(given.get("inner", ""))),
    }
    kept = {name: value for name, value in found.items() if name not in defaults}
    for name in defaults.keys() & found.keys():
        own = _differing(found[name], defaults[name](found[name]))
        if own:
            kept[name] = own
    return _differing(kept, {})


def _differing(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}
    if isinstance(kept.get(_TRAIN), dict):
        kept[_TRAIN] = _differing(kept[_TRAIN], _train_defaults())
    return kept


@cache
def _train_defaults() -> dict[str, Any]:
    return dict(_normal(TrainSettings().model_dump()))


@cache
def _selector_defaults(method: str) -> dict[str, Any]:
    return _normal(SELECTORS.make(method, {}).settings()) if method in SELECTORS else {}


@cache
def _reconstructor_defaults(name: str, inner: str) -> dict[str, Any]:
    """Defaults of a network, or of a residual reconstructor with a network of the kind ``inner``."""
    if name not in RECONSTRUCTORS:
        return {}
    made = RECONSTRUCTORS.make(name, {"inner": inner} if inner else {})
    return {**_normal(made.settings()), "inner": "dense"}


def _normal(value: Any) -> Any:
    """Give a value as JSON gives it back, with every number a float."""
    if isinstance(value, Mapping):
        return {str(name): _normal(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
