from .measure import fit_scale as fit_scale
from .measure import some_rows as some_rows
