"""One self-contained HTML page that shows what leveling did to a model, for whoever decides whether to ship it.

    write("page.html", [of_logits(logits, labels, counts)])

A `Subject` is one model on one set of samples; `write` makes the page of one or of several, and of `PageTable`s.

- subject: Subject, of_logits, of_snapshot
- open: of_file, of_run, of_choice, is_records, which read files
- render: write, PageTable
- verdict: the verdict in words
- page_data, encode_changes, calibration: the data of the page's script
- page.html, page.css and the scripts: the page itself
"""

from .open import is_records, of_choice, of_file, of_run
from .render import PageTable, write
from .subject import Subject, of_logits, of_snapshot

__all__ = ["PageTable", "Subject", "is_records", "of_choice", "of_file", "of_logits", "of_run", "of_snapshot", "write"]
