from .labels import IGNORED as IGNORED
from .labels import MULTILABEL as MULTILABEL
from .labels import flatten_positions as flatten_positions
from .labels import refuse_label_table as refuse_label_table
