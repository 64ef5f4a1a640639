from .labels import are_names as are_names
from .labels import index_labels as index_labels
from .labels import resolve_labels as resolve_labels
from .per_class import check_names as check_names
from .per_class import names_in_config as names_in_config
from .per_class import names_of_columns as names_of_columns
