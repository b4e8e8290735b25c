"""Keyhole for scikit-learn: selectors that fit where SelectKBest or SequentialFeatureSelector stood."""

from __future__ import annotations

from keyhole.sklearn.cv import KeyholeSelectorCV
from keyhole.sklearn.selectors import KeyholeClassifierSelector, KeyholeRegressorSelector, KeyholeSelector

__all__ = ["KeyholeClassifierSelector", "KeyholeRegressorSelector", "KeyholeSelector", "KeyholeSelectorCV"]
