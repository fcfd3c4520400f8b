"""Files in a question: texts for every model, and images for a model that sees them; by choice, paste and drop."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.page.browser import by, complaints, text_of, until
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page, send, wait_answer, wait_live
from tests.serve.apis.test_pdf_texts import pdf, shown
from tests.serve.harness import Live, serving
from tests.vision.folders import picture, png, smolvlm
from twostroke.server.attached.pdf import has_pypdf
from twostroke.server.build import build_server

pytestmark = pytest.mark.browser
GIVE = """
  const [way, name, type, text] = arguments;
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type }));
  const field = document.getElementById("question");
  const all = { dataTransfer: data, clipboardData: data, bubbles: true, cancelable: true };
  field.dispatchEvent(way === "drop" ? new DragEvent("drop", all) : new ClipboardEvent("paste", all));
"""
SPY = """
  const real = window.fetch;
  window.sent = [];
  window.fetch = (url, options) => {
    if (String(url).endsWith("/v1/chat/completions")) window.sent.push(options.body);
    return real(url, options);
  };
"""


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("seeing")
    smolvlm(folder)
    options = {"weights": "f32", "context": 1024, "threads": 1, "kv_memory": "20MB"}
    with build_server(str(folder), options) as built, serving(built.parts) as live:
        yield live


def give(driver: webdriver.Chrome, way: str, name: str, kind: str, data: bytes) -> None:
    """Pastes or drops a file, as a browser tells the page."""
    driver.execute_script(GIVE, way, name, kind, base64.b64encode(data).decode())


def attached(driver: webdriver.Chrome) -> list[str]:
    found = "return [...document.querySelectorAll('#attached .name')].map(each => each.textContent)"
    names: list[str] = driver.execute_script(found)
    return names


def painted(driver: webdriver.Chrome, css: str) -> list[str]:
    """The names of the images on the page. Each has its size once it is painted."""
    names = "return [...document.querySelectorAll(arguments[0])].map(each => `${each.ariaLabel} ${each.width}`)"
    found: list[str] = driver.execute_script(names, css)
    return found


def test_images_are_chosen_pasted_and_dropped_where_the_model_sees(
    chromium: webdriver.Chrome, seeing: Live, tmp_path: Path
) -> None:
    open_page(chromium, seeing)
    chosen = tmp_path / "chosen.png"
    chosen.write_bytes(png(picture(50, 20)))
    by(chromium, "#attach-file").send_keys(str(chosen))
    until(lambda: attached(chromium) == ["chosen.png"], "the chosen file")
    give(chromium, "paste", "pasted.png", "image/png", png(picture(40, 20)))
    until(lambda: len(attached(chromium)) == 2, "the pasted file")
    give(chromium, "drop", "dropped.png", "image/png", png(picture(30, 20)))
    until(lambda: len(attached(chromium)) == 3, "the dropped file")
    sizes = ["Image chosen.png 50", "Image pasted.png 40", "Image dropped.png 30"]
    until(lambda: painted(chromium, "#attached canvas") == sizes, "their pictures")
    by(chromium, "[aria-label='Remove pasted.png']").click()
    chromium.execute_script(SPY)
    assert "TTFT" in ask(chromium, "What is it?", 4)
    [body] = chromium.execute_script("return window.sent")
    content: list[Any] = json.loads(body)["messages"][-1]["content"]
    assert [part["type"] for part in content] == ["image_url", "image_url", "text"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert attached(chromium) == []
    chromium.refresh()
    wait_live(chromium)
    until(lambda: painted(chromium, ".files canvas") == ["Image chosen.png 50", "Image dropped.png 30"], "kept images")
    chromium.execute_script(SPY)
    ask(chromium, "And now?", 4)
    first = json.loads(chromium.execute_script("return window.sent")[0])["messages"][0]
    assert first["content"] == content  # an earlier question keeps its images
    assert complaints(chromium) == []


@pytest.mark.skipif(not has_pypdf(), reason="pypdf is not installed: pip install -e '.[test]'")
def test_the_text_of_a_pdf_file_is_attached(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    give(chromium, "drop", "paper.pdf", "application/pdf", pdf(shown("The pelican")))
    until(lambda: attached(chromium) == ["paper.pdf"], "the file")
    ask(chromium, "What bird?")
    assert script.last_text == "user: paper.pdf:\n```\nThe pelican\n```\n\nWhat bird?\nassistant: "
    give(chromium, "drop", "scan.pdf", "application/pdf", pdf(b""))
    until(lambda: "scan.pdf is not attached: The PDF file has no text" in text_of(chromium, "#attach-note"), "it")
    assert attached(chromium) == []


@pytest.mark.daily
def test_what_cannot_be_attached_is_refused_in_words(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    give(chromium, "drop", "cat.png", "image/png", png(picture(30, 20)))
    until(lambda: "cat.png is not attached: org/fake-model reads no images" in text_of(chromium, "#attach-note"), "it")
    give(chromium, "drop", "paper.bin", "application/octet-stream", b"\0\xff\xfe")
    until(lambda: "paper.bin is not attached: it is neither a text" in text_of(chromium, "#attach-note"), "it")
    assert attached(chromium) == []
    ask(chromium, "hi")
    assert script.last_text == "user: hi\nassistant: "


def test_texts_stand_before_the_question_and_a_long_paste_is_a_file(
    chromium: webdriver.Chrome, script: Scripted
) -> None:
    open_page(chromium, script.live)
    give(chromium, "drop", "note.md", "text/markdown", b"one\n```\ntwo")
    until(lambda: "11 tokens" in text_of(chromium, "#attached"), "the file and its length")
    send(chromium, "Well?")
    wait_answer(chromium)
    assert script.last_text == "user: note.md:\n````\none\n```\ntwo\n````\n\nWell?\nassistant: "
    chromium.refresh()
    wait_live(chromium)
    by(chromium, ".files summary").click()
    until(lambda: text_of(chromium, ".files pre") == "one\n```\ntwo", "the kept text")
    paste = """
      const data = new DataTransfer();
      data.setData("text/plain", "x".repeat(arguments[0]));
      const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
      return document.getElementById("question").dispatchEvent(event);
    """
    assert chromium.execute_script(paste, 2000)  # the field takes the text
    assert not chromium.execute_script(paste, 2001)
    until(lambda: attached(chromium) == ["Pasted text 1.txt"], "the long paste")
    until(lambda: "2,001 tokens, more than the context" in text_of(chromium, "#attached"), "its length")
    send(chromium, "Read it.")
    wait_answer(chromium)
    assert "too long" in text_of(chromium, f"{LAST} .notice")
    by(chromium, "#clear").click()
    by(chromium, "#chats-open").click()
    stored = """
      const done = arguments[0];
      indexedDB.open("twostroke").onsuccess = ({ target: { result } }) => {
        result.transaction("contents").objectStore("contents").getAllKeys().onsuccess =
          ({ target: { result: keys } }) => { result.close(); done(keys.length); };
      };
    """
    assert chromium.execute_async_script(stored) == 2
    by(chromium, "#chats-list .delete").click()
    until(lambda: chromium.execute_async_script(stored) == 0, "the contents to go with their chat")


@pytest.mark.daily
def test_without_a_place_for_contents_the_page_still_has_its_own(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    chromium.execute_script("IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); }")
    give(chromium, "drop", "note.txt", "text/plain", b"kept")
    until(lambda: "4 tokens" in text_of(chromium, "#attached"), "the file")
    for text in ("first", "second"):
        ask(chromium, text)
    assert script.last_text.startswith("user: note.txt:\n```\nkept\n```\n\nfirst\n")
    chromium.refresh()
    wait_live(chromium)
    assert text_of(chromium, ".files summary") == "note.txt"
    ask(chromium, "third")
    assert script.last_text.startswith("user: [The file note.txt was here; this browser has not kept it.]\n\nfirst\n")
