"""Curves, tables and progress for people. This room knows `Curve` and plain values, and no result class.

- plot: draw curves, norms and recall with matplotlib (extra `plot`), and save figures
- curve_text: draw a curve as text for a terminal, or as a small SVG
- html: write a result as a table for a notebook
- progress: progress bars on a terminal
- style: colors, percentages and shortened names
"""
