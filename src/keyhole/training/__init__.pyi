from .callbacks import Callback as Callback
from .callbacks import CSVLogger as CSVLogger
from .callbacks import TensorBoardLogger as TensorBoardLogger
from .settings import TrainSettings as TrainSettings
