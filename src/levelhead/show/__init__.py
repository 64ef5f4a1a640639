"""plot, curve_text, html, progress, style: curves, tables and bars for people, of plain values and no result class."""
