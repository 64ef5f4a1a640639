from .per_class_file import is_inline as is_inline
from .per_class_file import read_counts as read_counts
from .per_class_file import target_shares as target_shares
