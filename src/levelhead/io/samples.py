from .samples_file import Samples as Samples
from .samples_file import read as read
