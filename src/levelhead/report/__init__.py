"""One self-contained HTML page that shows what was chosen for a model, for whoever decides to ship it.

``write("page.html", [of_tuned(tuned, logits, labels)])``

- subject: `Subject`, a choice on one set of samples, with a row for each class
- sources: subjects from files: a tuned.json, logits, a run's folder, a snapshot
- words: every sentence
- use_it: commands and code to copy
- svg: elements of a drawing, and the plane of a chart
- charts, calibration, norms, confusion: what is drawn, and what is counted for it
- page: page.html, page.css and page.js, filled

The road: `of_tuned`, or `of_file` by way of it, makes a `Subject` of a choice and samples. `write` asks page.py to
`show` each subject: words.py, the charts and confusion.py each take the subject and return what they have to say, or
nothing where it is not known. Jinja2 puts that into page.html, and the whole is written in one step.

The page is a file that people mail to each other and open years later: it loads nothing, runs only the script that is
written into it, and prints. What it says of a gain are the words of `Tuned`, so that page, terminal and Python agree.
Nothing here chooses anything, except `of_file` where it is given logits and no choice.
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
