"""The reproduction of Kim and Kim 2020: its tables and figures, with our numbers next to the published ones.

- reproduce: train the networks that a table lacks
- page: draw the figures and fill in the page "Reproduction"
- geometry: what imbalance does to a head and its features, as angles and lengths
- tables: the published tables, from tables.toml
- trainings: the trainings of each table
- record: one trained network as a small JSON record; the two networks that come with the package
- post_hoc: the adjustments of one trained network, for its record
- cells: records to the cells of the tables
- markdown: the tables as Markdown, and the places of a page that are filled
- beyond_tables: tables that the paper lacks: other recipes, other readings of a row, rules epoch by epoch
- claims, figure_claims: the paper's claims, judged by the records
- figures: all figures of the paper
- figure_norms, figure_features, figure_errors, figure_style: the drawing of each, and the style that they share
- figure_beyond: figures that the paper lacks: the recipe `frontier`, the rules epoch by epoch
"""
