"""Sphinx settings: `make docs` builds these pages offline, runs every example of the gallery and fails on warnings.

Pages are Markdown. `reference.py` first writes the references from the code itself. `GALLERY=0` leaves out the
examples, for a quick look at the text.
"""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

os.environ.setdefault("KERAS_BACKEND", "torch")  # its default needs TensorFlow

import reference  # noqa: E402
from numpy.typing import ArrayLike  # noqa: E402
from sphinx.errors import ExtensionError  # noqa: E402
from sphinx.util import inspect  # noqa: E402
from sphinx.util.typing import stringify_annotation  # noqa: E402

import conftest  # noqa: E402, F401  one thread, and no garbage collection in the middle of ast.parse
import levelhead  # noqa: E402

project, author, release = "levelhead", "the levelhead developers", levelhead.__version__
copyright = f"{author}, MIT license"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "generated", "**sg_execution_times*"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "code"  # docstrings write `gamma`, as Markdown does
smartquotes_action = "qe"  # curly quotes and ellipses; --gamma keeps its two hyphens
templates_path = ["_templates"]
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"Array": "Array", "Counts": "Counts"}
autodoc_preserve_defaults = True
napoleon_use_param = False  # one entry may speak of several arguments: "rule, range: as in `tune`"
napoleon_use_ivar = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",  # every example is run
    "plot_gallery": os.environ.get("GALLERY", "1") != "0",
    "abort_on_example_error": False,  # all run first; then one that failed fails the build
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "backreferences_dir": "api/examples",
    "doc_module": ("levelhead",),
}

html_theme = "pydata_sphinx_theme"
html_title = "levelhead"
html_static_path = ["_static"]
html_css_files = ["levelhead.css"]
html_js_files = ["copy.js"]
html_extra_path = ["generated/site", "playground.html"]  # copied as they are
# Light or dark, as the reader's system is; unset, the theme complains.
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "levelhead"},
    "navbar_align": "left",
    "show_nav_level": 1,
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# Only the API has pages below it.
html_sidebars = {path.stem: [] for path in HERE.glob("*.md") if path.stem != "api"}


FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["'](?:https?:)?//[^"']+"""
    r"""|<link[^>]*rel=["'](?:stylesheet|preload|icon)[^>]*href=["'](?:https?:)?//[^"']+"""
    r"""|url\(["']?(?:https?:)?//[^)]+"""
)


def check_offline(app, exception):
    """Fail the build if a page would fetch a script, a style or a picture from another site."""
    pages = (
        [] if exception else [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]
    )
    found = [
        f"{page.relative_to(app.outdir)}: {one}"
        for page in pages
        for one in FETCHED.findall(page.read_text(encoding="utf-8"))
    ]
    if found:
        raise ExtensionError("these pages fetch from other sites: " + "; ".join(found[:5]))


def plain_signature(app, what, name, obj, options, signature, returned):
    """Write a signature as the code does: Array, Counts and ArrayLike by their names, that of `__init__`."""
    if what == "class" and signature == "(*args: object, **parameters: object)":
        # A `__new__` that passes on what it is given hides what that is.
        own = inspect.signature(
            obj.__init__, bound_method=True, type_aliases=app.config.autodoc_type_aliases
        )
        signature = inspect.stringify_signature(
            own, show_return_annotation=False, unqualified_typehints=True
        )
    return tuple(
        text
        and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)
        .replace(stringify_annotation(ArrayLike, "smart"), "ArrayLike")
        .replace("<factory>", "...")  # which is no Python, and would leave the rest unread
        for text in (signature, returned)
    )


def write_generated(app, config):
    reference.write(HERE / "generated")
    reference.write_example(HERE / "generated" / "site")


def show_files(app, name, source):
    source[0] = reference.show_files(source[0], HERE)


def setup(app):
    app.connect("source-read", show_files)
    app.connect("config-inited", write_generated)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("build-finished", check_offline)
