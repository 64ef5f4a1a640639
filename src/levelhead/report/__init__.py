"""One self-contained HTML page: what leveling did to a model, for the person who decides whether to ship it.

    write("page.html", [of_logits(logits, labels, counts)])

`of_snapshot`, `of_logits` and `of_file` make a Subject, one model on one set of samples; `write` makes the page of one
or of several.
"""

from .open import is_records, of_choice, of_file, of_run
from .render import Table, write
from .subject import Subject, of_logits, of_snapshot

__all__ = ["Subject", "Table", "is_records", "of_choice", "of_file", "of_logits", "of_run", "of_snapshot", "write"]
