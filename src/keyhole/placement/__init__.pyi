from .base import Selection as Selection
from .base import Selector as Selector
from .registry import SELECTORS as SELECTORS
