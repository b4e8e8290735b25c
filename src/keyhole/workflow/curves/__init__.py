"""Error against the number of sites: several methods at several K, and the fewest sites that reach an error."""

from keyhole.workflow.curves.result import Curve, CurveInterrupted, Row
from keyhole.workflow.curves.running import curve

__all__ = ["Curve", "CurveInterrupted", "Row", "curve"]
