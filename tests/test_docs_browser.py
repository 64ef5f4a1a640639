"""The documentation in headless chromium, opened from files and without a network. Skipped where there is none."""

import shutil
from pathlib import Path

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[1] / "docs"
SITE = DOCS / "_build" / "html"
PAGE = """<!doctype html><script src="{script}"></script>
<div class="highlight-sh"><div class="highlight"><pre>levelhead demo\n</pre></div></div>
<div class="highlight-pycon"><div class="highlight"><pre>&gt;&gt;&gt; for k in (1,):
...     print(k)
...
1
</pre></div></div>
<div class="highlight-text"><div class="highlight"><pre>1\n</pre></div></div>"""


@pytest.fixture(scope="module")
def offline():
    with playwright.sync_playwright() as library:
        started = library.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield started.new_context(offline=True)
        started.close()


def test_each_block_of_code_but_no_output_has_a_button_that_copies_what_is_typed(offline, tmp_path):
    (tmp_path / "page.html").write_text(PAGE.format(script=(DOCS / "_static" / "copy.js").as_uri()))
    page = offline.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator(".copy-code").count() == 2
    copied = "Array.from(document.querySelectorAll('pre'), codeOf)"
    assert page.evaluate(copied)[:2] == ["levelhead demo", "for k in (1,):\n    print(k)\n"]
    page.locator(".copy-code").first.click()
    page.get_by_text("Copied").wait_for(timeout=5000)


@pytest.mark.skipif(
    not (SITE / "searchindex.js").is_file(), reason="the site is not built (make docs)"
)
def test_search_finds_a_page_without_a_network(offline):
    page, fetched = offline.new_page(), []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=temperature")
    page.locator("#search-results li a").first.wait_for(timeout=20_000)
    assert any(
        "probabilities" in text for text in page.locator("#search-results li a").all_inner_texts()
    )
    assert [url for url in fetched if not url.startswith("file:")] == []
