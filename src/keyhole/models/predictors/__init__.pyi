from .base import Predictor as Predictor
from .base import target_of as target_of
from .linear import Linear as Linear
from .linear import eliminate as eliminate
from .linear import nested_errors as nested_errors
from .model_selection import fit_predictor as fit_predictor
from .network import Network as Network
from .registry import PREDICTORS as PREDICTORS
