"""The tables of the paper (Dona & Gallinari), as printed."""

from __future__ import annotations

__all__ = ["CLASSIFICATION", "METHODS", "RECONSTRUCTION", "published_mse"]

METHODS = ("cae", "iln", "sct", "vln", "hnet")

# Mean squared error x 100, by data set, K and method. The paper's climate and CelebA rows are of other data and of an
# unknown scale: they are shown, and not compared.
RECONSTRUCTION: dict[str, dict[int, tuple[float, ...]]] = {
    "mnist": {
        20: (3.60, 3.67, 3.72, 3.22, 2.15),
        30: (3.05, 2.41, 3.61, 2.19, 1.53),
        50: (2.40, 1.41, 2.60, 1.33, 1.06),
    },
    "climate": {
        100: (2.07, 1.44, 2.20, 1.11, 1.78),
        200: (1.98, 1.05, 1.89, 0.93, 0.96),
        300: (1.96, 0.83, 1.51, 0.79, 0.60),
    },
    "celeba": {
        100: (7.65, 7.1, 7.99, 3.11, 2.81),
        200: (6.42, 2.56, 3.31, 1.96, 1.7),
        300: (5.7, 1.87, 2.44, 1.50, 1.46),
    },
}

# Percent of MNIST digits taken for another, (least, mean) of five trainings, by K and method.
CLASSIFICATION: dict[int, tuple[tuple[float, float], ...]] = {
    20: ((24.4, 31.64), (21.58, 28.26), (20.88, 32.79), (12.15, 24.74), (19.23, 25.07)),
    30: ((8.89, 19.60), (7.96, 16.63), (9.49, 18.22), (6.38, 15.07), (7.24, 17.80)),
    50: ((5.45, 6.65), (4.17, 5.33), (4.11, 6.77), (3.32, 4.67), (2.84, 6.45)),
}

_ROWS = {"mnist": "mnist", "celeba": "celeba", "ncep": "climate", "ipsl": "climate"}


def published_mse(data: str, k: int, method: str) -> float | None:
    """Return the paper's mean squared error of a method.

    Parameters
    ----------
    data
        Name of the data set.
    k
        Number of sites.
    method
        Name of the method.

    Returns
    -------
    float or None
        None where the paper has no such row.
    """
    row = RECONSTRUCTION.get(_ROWS.get(data, ""), {}).get(k)
    return None if row is None or method not in METHODS else row[METHODS.index(method)] / 100
