from .file_format import load as load
from .file_format import load_without_modules as load_without_modules
from .plan import Plan as Plan
from .plan import ReconstructionInterval as ReconstructionInterval
