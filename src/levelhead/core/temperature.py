from .logits import fit_scale as fit_scale
from .logits import some_rows as some_rows
