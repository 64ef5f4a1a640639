from .per_class_file import read_names as read_names
