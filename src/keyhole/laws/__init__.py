"""Laws: distributions of masks with learned parameters."""

from __future__ import annotations

from keyhole.laws.base import Law, MaskSample, concentration_of, share
from keyhole.laws.concrete import SCT
from keyhole.laws.hyper import HNetLN
from keyhole.laws.logit_normal import ILN, VLN
from keyhole.laws.simplex import SimplexLN

__all__ = ["ILN", "LAWS", "SCT", "VLN", "HNetLN", "Law", "MaskSample", "SimplexLN", "concentration_of", "share"]

LAWS: dict[str, type[Law]] = {law.name: law for law in (ILN, VLN, HNetLN, SCT, SimplexLN)}
