"""Curves, tables and progress for people. This room knows `Curve` and plain values, and no result class."""
