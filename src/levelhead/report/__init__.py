"""One self-contained HTML page that shows what leveling did to a model, for whoever decides whether to ship it.

    write("page.html", [of_logits(logits, labels, counts)])

A `Subject` is one model on one set of samples; `write` makes the page of one or of several, and of `PageTable`s.

- subject: Subject, LabelSubject: what a page is about, with the rules that it shows
- open: of_logits, of_labels, of_snapshot; of_file, of_run, of_choice, which read files
- render: write, PageTable, is_records
- verdict, use_it: the verdict in words with its warnings, code to copy
- labels: all of that for several labels per sample
- rule_view: each rule with all that it predicts, computed
- page_data, calibration: the data of the page's script, and the rules that were tried
- page.html, page.css and the scripts: the page itself
"""

from .open import of_choice, of_file, of_labels, of_logits, of_run, of_snapshot
from .render import PageTable, is_records, write
from .subject import LabelSubject, Subject

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
