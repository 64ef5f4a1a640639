"""plot, curve_text, progress, style: curves, tables and bars for people, of plain values and no result class."""
