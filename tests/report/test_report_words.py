"""Formatting of numbers, shares and settings."""

from __future__ import annotations

import numpy as np
import pytest

from keyhole.report.formatting import number, percent, plain, quantity, shorten


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.46543, "0.465"), (12.345, "12.3"), (1234.5, "1234"), (0, "0"), (2.14e-7, "2.14e-07"), (-0.02, "-0.0200")],
)
def test_numbers_have_three_digits(value, text):
    """Three significant digits, and an exponent only where a plain number is long."""
    assert number(value) == text


def test_numbers_that_are_none_are_unknown():
    """A fraction of no variance is no number."""
    assert number(float("nan")) == percent(float("nan")) == "unknown"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.5707, "57%"), (1.0, "100%"), (0.996, "99.6%"), (0.0004, "0.04%"), (6e-14, "<0.01%"), (1 - 1e-9, ">99.99%")],
)
def test_shares_near_the_ends_have_more_digits(share, text):
    """Neither 0 % nor 100 % is said of what is not."""
    assert percent(share).replace("\N{NARROW NO-BREAK SPACE}", "") == text


def test_units_follow_their_number():
    """Without units there is no blank at the end."""
    assert (quantity(1.5, "K"), quantity(1.5, "")) == ("1.50 K", "1.50")


def test_any_value_is_plain_text():
    """Dates are dates, mappings and lists are read out."""
    assert plain(np.datetime64("2001-02-03T00:00", "ns")) == "2001-02-03"
    assert plain(np.datetime64("2001-02-03T04:05", "ns")) == "2001-02-03 04:05"
    assert plain(np.datetime64("NaT", "ns")) == "unknown"
    assert (
        plain({"rate": 2e-3, "on": True, "sizes": [1, 2], "none": None})
        == "rate 0.002, on yes, sizes (1, 2), none none"
    )
    assert shorten("abcdef", 4) == "abc…"
