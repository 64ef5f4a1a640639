"""plot, style: curves and tables for people, of plain values and no result class."""
