"""Error against the number of sites: several methods at several K, and the fewest sites that reach an error."""

from keyhole.curves.result import Curve, Row, Stopped
from keyhole.curves.running import curve

__all__ = ["Curve", "Row", "Stopped", "curve"]
