"""Methods that only the reproduction of another paper's rows trains: no part of `METHODS`."""

from .cao2019 import CAO_METHODS
from .cui2019 import CUI_METHODS

SOURCE_METHODS = CUI_METHODS | CAO_METHODS
