from .plan import Plan as Plan
from .plan import ReconstructionInterval as ReconstructionInterval
from .plan import load as load
