from . import datasets as datasets
from .constraints import Constraints as Constraints
from .readers import read as read
from .samples import Samples as Samples
from .scaler import Scaler as Scaler
from .sites import Sites as Sites
from .splits import Split as Split
from .target import Target as Target
