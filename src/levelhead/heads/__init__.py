"""Where a head lives: each module has `read(x) -> Head` and `write(x, head)`, for one kind of x."""
