from .file_format import load as load
from .plan import Plan as Plan
from .plan import ReconstructionInterval as ReconstructionInterval
