from .array import usable_cores as usable_cores
