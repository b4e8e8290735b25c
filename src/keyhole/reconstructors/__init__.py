"""Reconstructors: from readings to the whole signal. One class in one file, one line in the registry."""

from __future__ import annotations

from keyhole.reconstructors.base import Reconstructor
from keyhole.reconstructors.choice import fit_best
from keyhole.reconstructors.dcgan import DCGAN
from keyhole.reconstructors.detail import Detail
from keyhole.reconstructors.ensemble import Ensemble
from keyhole.reconstructors.kernel import Kernel
from keyhole.reconstructors.kriging import Kriging
from keyhole.reconstructors.limits import Limits
from keyhole.reconstructors.neural import Dense, ResNetReconstructor
from keyhole.reconstructors.residual import Residual
from keyhole.reconstructors.ridge import NestedRidge, Ridge, nested_errors

__all__ = [
    "RECONSTRUCTORS",
    "Kriging",
    "Limits",
    "NestedRidge",
    "Reconstructor",
    "Residual",
    "Ridge",
    "fit_best",
    "nested_errors",
]

RECONSTRUCTORS: dict[str, type[Reconstructor]] = {
    kind.name: kind for kind in (Ridge, Kriging, Kernel, Dense, Detail, ResNetReconstructor, DCGAN, Residual, Ensemble)
}
