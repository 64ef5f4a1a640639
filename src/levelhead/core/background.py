from .counts import check_left_alone as check_left_alone
from .counts import find_background as find_background
