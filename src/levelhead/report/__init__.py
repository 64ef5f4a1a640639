"""One self-contained HTML page that shows what leveling did to a model, for whoever decides whether to ship it.

    write("page.html", [of_logits(logits, labels, counts)])

A `Subject` is one model on one set of samples; `write` makes the page of one or of several, and of `PageTable`s.

- subject: Subject, of_logits, of_snapshot
- labels: LabelSubject, of_labels, for several labels per sample
- open: of_file, of_run, of_choice, is_records, which read files
- render: write, PageTable
- verdict, alarms, use_it, rule_table: the verdict in words, warnings, code to copy, the rules that were tried
- rule_view, share_path: each rule with all that it predicts
- page_data, encode_changes, calibration: the data of the page's script
- page.html, page.css and the scripts: the page itself
"""

from .labels import LabelSubject, of_labels
from .open import is_records, of_choice, of_file, of_run
from .render import PageTable, write
from .subject import Subject, of_logits, of_snapshot

__all__ = [
    "LabelSubject",
    "PageTable",
    "Subject",
    "is_records",
    "of_choice",
    "of_file",
    "of_labels",
    "of_logits",
    "of_run",
    "of_snapshot",
    "write",
]
