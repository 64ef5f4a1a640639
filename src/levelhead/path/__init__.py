"""The exact path over one strength: every change of every prediction.

direction, curve: how scores depend on one strength, and where two cross; step functions of a strength
engines, intervals_torch, intervals_triton: where samples are right
envelope: logits read in chunks, and every change of every prediction
"""
