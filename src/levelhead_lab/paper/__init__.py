"""The reproduction of Kim and Kim 2020: its tables and figures, with our numbers next to the published ones.

Two roads lead through this room, and meet in results/records:

- `levelhead reproduce TABLE` trains: reproduce -> trainings (what the table needs) -> train_groups (what has no record)
  -> record and post_hoc (a small JSON file of each network).
- `levelhead reproduce figures` writes: page -> cells.load_records -> tables, sentences, claims and figures, from
  records and a few other files of results/ -> the places of the pages.

So nobody needs a GPU to check a number of the pages, and a change of a sentence trains nothing. To read the room, begin
with record_fields, tables and cells: everything else asks these.

- reproduce: what a table has, what it lacks, and its trainings
- train_groups: train the networks that have no record
- asked_rows: the rows of a table that a command was asked for
- page: draw the figures and fill in the pages of the reproduction, `docs/reproduction*.md`
- geometry: what imbalance does to a head and its features, as angles and lengths
- tables: the published tables, from tables.toml
- table_fields: what tables.toml holds, part by part
- trainings: the trainings of each table
- record: one trained network as a small JSON record; the two networks that come with the package
- record_fields: what a record has, field by field
- measured_fields: what the other files of results/ have
- post_hoc: the adjustments of one trained network, for its record
- cells: records to the cells of the tables
- paper_tables: the tables of the paper as Markdown, ours beside the published numbers
- markdown: a table as Markdown, and the places of a page that are filled
- distances, headline: how far our rows are from the paper's, and the lines at the top of the page
- row_texts, wvn_differs: what is said of the rows, and why WVN+RS differs
- table2_readings: Table 2 by other readings of its source's recipe
- beyond_tables, beyond_texts, refit: what the paper lacks: other recipes, heads fitted again
- how_done: settings, cost, and what has no record yet
- claims: what the paper's claims share
- norm_claims, feature_claims, table_claims, gamma_claims, network_claims: each claim, judged by records or networks
- all_claims: every claim in the order of the paper
- figures: all figures of the paper
- figure_norms, figure_features, figure_errors, figure_style: the drawing of each, and the style that they share
- figure_beyond: figures that the paper lacks: the recipe `frontier`, the rules epoch by epoch
- words: numbers and lists as a sentence has them
"""
