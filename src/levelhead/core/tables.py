from .array import SCRATCH as SCRATCH
