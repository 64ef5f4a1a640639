"""`python -m levelhead` is the command `levelhead`."""

from .cli import main

main()
