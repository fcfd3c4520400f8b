"""Markdown as the page's own module makes it, in a real Chromium: the elements that it shows, and what hostile text
cannot do."""

from __future__ import annotations

from typing import Any

import pytest
from selenium import webdriver

from tests.page.browser import complaints
from tests.page.scripted import Scripted
from tests.page.steps import open_page

pytestmark = pytest.mark.browser
RENDER = """
  const [texts, done] = arguments;
  import("/page/markdown.js").then(({ MarkdownView }) => {
    const host = document.createElement("div");
    const view = new MarkdownView(host);
    const since = performance.now();
    for (const text of texts) view.update(text);
    done({ html: host.innerHTML, ms: performance.now() - since });
  }).catch((error) => done({ html: String(error), ms: 0 }));
"""
LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


def render(driver: webdriver.Chrome, *texts: str) -> str:
    """The elements after these texts, which come one after the other in the same view."""
    made: dict[str, Any] = driver.execute_async_script(RENDER, texts)
    return str(made["html"])


@pytest.fixture
def page(chromium: webdriver.Chrome, script: Scripted) -> webdriver.Chrome:
    open_page(chromium, script.live)
    return chromium


CASES = {
    "a **b** *c* ~~d~~ `e*f`": "<p>a <strong>b</strong> <em>c</em> <del>d</del> <code>e*f</code></p>",
    "***both*** snake_case_name 2*3*4": "<p><em><strong>both</strong></em> snake_case_name 2<em>3</em>4</p>",
    "one\ntwo\n\nthree": "<p>one<br>two</p><p>three</p>",
    "# Title\n## Less": '<h4 class="level-1">Title</h4><h5 class="level-2">Less</h5>',
    "- a\n  - b\n- c": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
    "3. a\n4. b\n   more": '<ol start="3"><li>a</li><li>b<br>more</li></ol>',
    "- [x] done\n- [ ] open": '<ul><li class="task">☑ done</li><li class="task">☐ open</li></ul>',
    "> quoted\n> on": "<blockquote><p>quoted<br>on</p></blockquote>",
    "---": "<hr>",
    "2 < 3 & \\*no\\*": "<p>2 &lt; 3 &amp; *no*</p>",
    "see [docs](https://example.org/a_b) and https://example.org/x.": (
        f'<p>see <a href="https://example.org/a_b" {LINK}>docs</a> and '
        f'<a href="https://example.org/x" {LINK}>https://example.org/x</a>.</p>'
    ),
    "**open and `open": "<p>**open and `open</p>",
}


def test_marks_become_elements(page: webdriver.Chrome) -> None:
    assert {text: render(page, text) for text in CASES} == CASES


def test_a_table_has_its_columns_and_their_sides(page: webdriver.Chrome) -> None:
    html = render(page, "| a | b |\n|---|--:|\n| x | 1 |\n| y | `2|` |")
    assert html.count("<tr>") == 3 and html.count('class="right"') == 3, html


def test_code_blocks_keep_every_character_and_have_a_copy_button(page: webdriver.Chrome) -> None:
    html = render(page, '```python\ndef f(x):\n    return "<b>" + x\n```\nafter')
    assert 'def f(x):\n    return "&lt;b&gt;" + x</code>' in html and "<span>python</span>" in html
    assert '<button type="button" class="copy">Copy</button>' in html and html.endswith("<p>after</p>")


@pytest.mark.daily
def test_text_that_grows_gives_the_same_as_text_at_once(page: webdriver.Chrome) -> None:
    text = "\n\n".join([*CASES, "```js\nlet a = 1;\n```", "| a | b |\n|---|---|\n| 1 | 2 |", "last"])
    assert render(page, *[text[:end] for end in range(0, len(text), 3)], text) == render(page, text)


HOSTILE = [
    "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "[click](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x) [d](//evil.example) [e](/v1/models)",
    "![pixel](http://evil.example/pixel.png)",
    '<javascript:alert(1)> <https://example.org/"onclick=alert(1)>',
    "```<img>\n</code></pre><img src=x>\n```",
    "[a](java\nscript:alert(1)) [b]( javascript:alert(1))",
]


def test_hostile_text_stays_text(page: webdriver.Chrome) -> None:
    """It becomes only known elements and attributes, with no addresses but http, https and mailto."""
    allowed = """
      const [texts, done] = arguments;
      import("/page/markdown.js").then(({ MarkdownView }) => {
        const host = document.createElement("div");
        document.body.append(host);
        new MarkdownView(host).update(texts.join("\\n\\n"));
        const all = [...host.querySelectorAll("*")];
        done({
          tags: [...new Set(all.map((each) => each.tagName))],
          attributes: [...new Set(all.flatMap((each) => each.getAttributeNames()))],
          schemes: [...new Set(all.filter((each) => each.href).map((each) => new URL(each.href).protocol))],
        });
      });
    """
    found = page.execute_async_script(allowed, HOSTILE)
    assert set(found["tags"]) <= {"P", "A", "BR", "DIV", "SPAN", "BUTTON", "PRE", "CODE"}, found
    assert set(found["attributes"]) <= {"class", "href", "target", "rel", "type", "tabindex"}, found
    assert set(found["schemes"]) <= {"http:", "https:", "mailto:"}, found
    assert complaints(page) == []


@pytest.mark.daily
def test_work_grows_no_faster_than_the_text(page: webdriver.Chrome) -> None:
    """Texts on which backtracking or recursive readers are slow. Each would take minutes, or end the page."""
    size = 40_000
    texts = ["*" * size, "_a" * size, "[" * size, "](" * size, "`a``" * size, "> " * size, "- " * size, "|a" * size]
    texts += ["**a " * size, "[a](" * size, "\n".join(" " * (at % 50) + "- x" for at in range(5000)), "<http:" * size]
    lines = ["|a|\n|-|\n" + "|b|\n" * 150_000, "> a\n>\n" * 150_000, "- a\n" * 150_000, "a\n\n" * 20_000]
    texts += [*lines, "|a" * 10_000 + "|\n" + "|-" * 10_000 + "|"]
    for text in texts:
        assert "Error" not in render(page, text)[:200], text[:20]
