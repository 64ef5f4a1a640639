from .head import norm_follows_count as norm_follows_count
from .head import rank_correlation as rank_correlation
