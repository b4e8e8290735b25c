"""The examples in the docstrings of mask distributions, budgets and collapse functions run as printed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import keyhole.masks

MODULES = [f"keyhole.masks.{module.name}" for module in pkgutil.iter_modules(keyhole.masks.__path__)]


@pytest.mark.parametrize("module", ["keyhole.masks", *MODULES])
def test_examples(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
