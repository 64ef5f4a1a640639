from .samples_file import read_label_samples as read_label_samples
