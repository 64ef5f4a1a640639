"""One self-contained HTML page that shows what was chosen for a model, for whoever decides to ship it.

``write("page.html", [of_tuned(tuned, logits, labels)])``

- subject: `Subject`, a choice on one set of samples, with a row for each class
- sources: subjects from files: a tuned.json, logits, a run's folder, a snapshot
- words: every sentence
- use_it: commands and code to copy
- svg: elements of a drawing, and the plane of a chart
- charts, calibration, norms, confusion: what is drawn, and what is counted for it
- page: page.html, page.css and page.js, filled
"""

from .page import PageTable, is_records, write
from .sources import of_file, of_run
from .subject import Applied, Subject, of_tuned, with_sha256

__all__ = [
    "Applied",
    "PageTable",
    "Subject",
    "is_records",
    "of_file",
    "of_run",
    "of_tuned",
    "with_sha256",
    "write",
]
