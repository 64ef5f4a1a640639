from .head import rounding_flips as rounding_flips
