"""plot, progress, style: curves, tables and bars for people, of plain values and no result class."""
