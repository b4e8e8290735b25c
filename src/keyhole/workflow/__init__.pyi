from .changes import drop as drop
from .changes import extend as extend
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .curves import Curve as Curve
from .curves import curve as curve
from .selection import select as select
