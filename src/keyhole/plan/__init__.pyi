from .plan import Plan as Plan
from .plan import ReconstructionInterval as ReconstructionInterval
from .file_format import load as load
