from .atomic import scratch as scratch
