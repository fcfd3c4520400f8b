"""The layout of the page on the screen: widths, folds, names for screen readers, and no elements that jump."""

from __future__ import annotations

import re
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support.select import Select

from tests.page.browser import box, by, complaints, resize, set_value, text_of, until
from tests.page.scripted import Scripted, scripted
from tests.page.steps import LAST, ask, open_page, wait_live
from tests.serve.harness import Live

pytestmark = pytest.mark.browser
PANELS = ("panel-latency", "panel-kv", "panel-roofline", "panel-predicted")
WIDE = """
  const edge = document.documentElement.clientWidth;
  return [...document.querySelectorAll("body *")].filter((each) => {
    if (each.closest(".unseen, .skip, .scrolls, pre") || !each.checkVisibility()) return false;
    const { left, right, width } = each.getBoundingClientRect();
    return width && (right > edge + 0.5 || left < -0.5);
  }).map((each) => each.outerHTML.slice(0, 80));
"""
TABLE = "| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n| " + " | ".join(["wide-cell-text"] * 6) + " |"


def too_wide(driver: webdriver.Chrome) -> list[str]:
    """Elements that reach beyond the edges. Only tables and code may, inside a box that scrolls."""
    found: list[str] = driver.execute_script(WIDE)
    return found


@pytest.mark.parametrize("width", [320, 390, 800, 1440])
def test_nothing_reaches_beyond_the_edges(chromium: webdriver.Chrome, spark: Live, width: int) -> None:
    resize(chromium, width, 844)
    open_page(chromium, spark)
    assert too_wide(chromium) == []
    ask(chromium, "What is prefill?", most=80)
    assert too_wide(chromium) == []
    dialogs = [(f"{LAST} .explain", "explain"), *((f"#{name}-open", name) for name in ("settings", "chats", "compare"))]
    for opens, dialog in dialogs + ([("#keys-open", "keys")] if width >= 800 else []):
        by(chromium, opens).click()
        until(lambda dialog=dialog: by(chromium, f"#{dialog}").is_displayed(), "the dialog")
        until(lambda: "…" not in text_of(chromium, "#explain-body"), "the explanation")
        assert too_wide(chromium) == []
        place = box(chromium, f"#{dialog}")
        assert place["top"] >= 0 and place["bottom"] <= 844  # a longer menu scrolls inside
        by(chromium, f"#{dialog} .bar button").click()
    if width < 990:
        by(chromium, "#views [data-view=engine]").click()
    chromium.execute_script("for (const each of document.querySelectorAll('#engine details')) each.open = true")
    assert too_wide(chromium) == []


CUT = """
  return [...document.querySelectorAll("body *")].filter((each) => {
    if (each.closest(".unseen, .skip, .scrolls, pre") || !each.checkVisibility()) return false;
    return getComputedStyle(each).overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1;
  }).map((each) => `${each.id || each.className || each.tagName}: ${each.innerText.slice(0, 80)}`);
"""
LONGEST = {
    "#now": "Reading 120 prompts and writing 480 answers; 1,024 requests wait for a place.",
    "#last-text": "1,204 tokens in 12.66 s: " + " · ".join(f"others' prefill {place}.44 s" for place in range(9)),
    "#tiles div:nth-child(3) dd": "1,234,567 tok/s",
    "#lanes li:first-child button": "1,024 tokens, 1,000 of 1,024 guesses, cut · 5871da58-63/127",
}
"""The longest texts that the page writes into places of their own."""


@pytest.mark.daily
def test_a_wide_screen_cuts_no_name_and_no_figure(chromium: webdriver.Chrome, spark: Live) -> None:
    resize(chromium, 1440, 900)
    open_page(chromium, spark)
    ask(chromium, "What is prefill, what is decode, and which of the two is limited by memory?", most=80)
    spark.complete(prompt="a b c", n=3, max_tokens=8)
    until(lambda: "/2" in text_of(chromium, "#lanes"), "the lane of the third completion")
    by(chromium, "#pause").click()
    chromium.execute_script("for (const each of document.querySelectorAll('#engine details')) each.open = true")
    assert chromium.execute_script(CUT) == []
    for place, text in LONGEST.items():
        chromium.execute_script("document.querySelector(arguments[0]).textContent = arguments[1]", place, text)
    assert chromium.execute_script(CUT) == []
    assert too_wide(chromium) == []


@pytest.mark.daily
def test_wide_answers_scroll_inside(chromium: webdriver.Chrome, script: Scripted) -> None:
    resize(chromium, 390, 844)
    script.engine.answer = f"{TABLE}\n\n```\n{'code ' * 50}\n```\n\n{'longword' * 30}"
    open_page(chromium, script.live)
    ask(chromium, "wide " * 20 + "question" * 20, most=900)
    assert by(chromium, f"{LAST} table") and too_wide(chromium) == []


def test_a_narrow_screen_shows_one_part_at_a_time_and_the_field_stays_in_sight(
    chromium: webdriver.Chrome, spark: Live
) -> None:
    resize(chromium, 390, 844)
    open_page(chromium, spark)
    assert by(chromium, "#chat").is_displayed() and not by(chromium, "#engine").is_displayed()
    for _ in range(3):
        ask(chromium, "What is prefill?", most=80)
    assert box(chromium, "#ask")["bottom"] <= 844
    assert chromium.execute_script("return document.documentElement.scrollHeight") <= 844  # only the messages scroll
    engine = by(chromium, "#views [data-view=engine]")
    engine.click()
    assert by(chromium, "#engine").is_displayed() and not by(chromium, "#chat").is_displayed()
    assert engine.get_attribute("aria-pressed") == "true"
    until(lambda: int(chromium.execute_script("return document.getElementById('steps').width")) > 300, "a drawing")


@pytest.mark.daily
def test_experts_panels_are_folded_at_first_and_stay_as_they_were_left(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    folds = "return [...document.querySelectorAll('#engine details')].map(e => [e.id, e.open])"
    assert chromium.execute_script(folds) == [[name, False] for name in PANELS]
    by(chromium, "#panel-kv summary").click()
    until(lambda: "pages of 16 tokens" in text_of(chromium, "#kv-text"), "the map")
    chromium.refresh()
    wait_live(chromium)
    assert chromium.execute_script(folds) == [[name, name == "panel-kv"] for name in PANELS]


@pytest.mark.daily
def test_each_picture_has_a_name_and_a_line_that_explains_it(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    chromium.execute_script("for (const each of document.querySelectorAll('#engine details')) each.open = true")
    ask(chromium, "What is prefill?")
    until(lambda: "tokens, " in text_of(chromium, "#lanes li:first-child button"), "a lane")
    by(chromium, "#pause").click()  # old lanes disappear with time
    canvases = chromium.find_elements("css selector", "canvas")
    assert len(canvases) >= 5
    assert [each.get_attribute("id") for each in canvases if len(each.accessible_name) < 10] == []
    places = chromium.find_elements("css selector", "#engine figure:not([hidden]), #engine details")
    assert len(places) == 7
    explained = [each.find_element("css selector", ".says").text for each in places]
    assert all(len(words.split()) >= 5 and words.endswith(".") for words in explained), explained
    fields = chromium.find_elements("css selector", "button, select, input, textarea, summary")
    assert [
        each.get_attribute("outerHTML") for each in fields if each.is_displayed() and not each.accessible_name
    ] == []


@pytest.mark.daily
def test_axes_have_units(chromium: webdriver.Chrome, spark: Live) -> None:
    """Collects every word that is painted, on its way to the canvas."""
    open_page(chromium, spark)
    chromium.execute_script(
        """
        window.painted = {};
        const fill = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
          (window.painted[this.canvas.id] ??= new Set()).add(text);
          return fill.call(this, text, ...place);
        };
        for (const each of document.querySelectorAll("#engine details")) each.open = true;
        """
    )
    ask(chromium, "What is prefill?")
    read = "return Object.fromEntries(Object.entries(window.painted).map(([id, texts]) => [id, [...texts]]))"
    until(lambda: {"steps", "roofline", "predicted"} <= set(chromium.execute_script(read)), "drawings")
    until(lambda: "predicted" in chromium.execute_script(read)["predicted"], "steps in them")
    painted: dict[str, list[str]] = chromium.execute_script(read)
    assert any(text.endswith(" ms") for text in painted["steps"]) and "newest step" in painted["steps"]
    assert "int8 operations a second" in painted["roofline"]
    assert any("byte" in text for text in painted["roofline"])
    assert {"measured", "predicted"} <= set(painted["predicted"])
    assert any(re.fullmatch(r"[\d.]+ m?s", text) for text in painted["predicted"])
    assert "10 s ago" in text_of(chromium, "#lanes-axis") and "now" in text_of(chromium, "#lanes-axis")


def test_nothing_on_the_engine_side_jumps(chromium: webdriver.Chrome, spark: Live) -> None:
    """Figures change, but places do not, from the first frame to an answer's end."""
    resize(chromium, 1440, 900)
    open_page(chromium, spark)
    places = """
      const tiles = [1, 2, 3, 4, 5, 6].map((n) => `#tiles div:nth-child(${n})`);
      return ["#tiles", "#last", "#lanes", "#steps", "#steps-text", "#panel-latency", ...tiles].map((css) => {
        const { x, y, width, height } = document.querySelector(css).getBoundingClientRect();
        return [css, x, y, width, height];
      });
    """
    before: Any = chromium.execute_script(places)
    tile = chromium.execute_script("return document.querySelector('#tiles dd')")
    for _ in range(6):  # more requests than the list of lanes shows at once
        ask(chromium, "What is prefill?", most=30)
    until(lambda: text_of(chromium, "[data-tile=decode]") != "–", "figures")
    until(lambda: len(chromium.find_elements("css selector", "#lanes li")) >= 6, "lanes")
    assert chromium.execute_script(places) == before
    assert tile.is_displayed()  # the element stays the same all the time
    assert text_of(chromium, "#now").endswith(".")


def test_the_engine_side_says_what_it_does(chromium: webdriver.Chrome, patient: Live) -> None:
    open_page(chromium, patient)
    until(lambda: text_of(chromium, "#now") == "Idle.", "an idle engine")
    ask(chromium, "What is prefill?", most=30)
    until(lambda: text_of(chromium, "#last-text").startswith("30 tokens in "), "the last answer")
    told = text_of(chromium, "#last-text")
    assert "decode" in told and "ms" in told  # a busy machine leaves out a short prefill
    by(chromium, "#last-why").click()
    until(lambda: "Where the time went" in text_of(chromium, "#explain-body"), "an explanation")


@pytest.mark.daily
def test_columns_of_an_explanation_are_aligned(chromium: webdriver.Chrome, spark: Live) -> None:
    for width in (1440, 390):
        resize(chromium, width, 844)
        open_page(chromium, spark)
        ask(chromium, "What is a token?")
        by(chromium, f"{LAST} .explain").click()
        until(lambda: text_of(chromium, "#explain-body table"), "an explanation")
        edges = chromium.execute_script(
            """
            return [...document.querySelectorAll("#explain-body table")].map((table) =>
              [...table.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) =>
                Math.round(cell.getBoundingClientRect()[cell.className === "number" ? "right" : "left"]))));
            """
        )
        for rows in edges:
            assert all(row == rows[0] for row in rows), edges
        asked = chromium.execute_script("return document.querySelector('#explain-body .id').textContent")
        told = spark.get(f"/v1/requests/{asked}/explain").json["completions"][0]
        shown = text_of(chromium, "#explain-body")
        assert all(cause["text"] in shown for cause in told["causes"]), shown
        assert all(advice["text"] in shown for advice in told["advice"]), shown


def test_contrast_of_text_is_enough_in_both_themes(chromium: webdriver.Chrome, spark: Live) -> None:
    """WCAG 2, level AA, requires 4.5 to 1."""
    open_page(chromium, spark)
    ask(chromium, "What is a page?")
    chromium.execute_script("document.getElementById('setting-measures').click()")
    set_value(chromium, "#setting-temperature", "2")  # tokens of every colour
    ask(chromium, "What is a token?")
    by(chromium, f"{LAST} .show-tokens").click()
    until(lambda: chromium.find_elements("css selector", ".marks .token"), "tokens")
    measure = """
      const parse = (text) => text.match(/[\\d.]+/g).map(Number);
      const linear = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
      const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
      const back = (each) => {
        for (let at = each; at; at = at.parentElement) {
          const colour = parse(getComputedStyle(at).backgroundColor);
          if (colour.length < 4 || colour[3] > 0) return colour;
        }
      };
      const poor = [];
      for (const each of document.querySelectorAll("body *")) {
        if (!each.checkVisibility() || each.closest(".unseen, .skip, noscript") || each.matches(":disabled")) continue;
        if (![...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
        const [a, b] = [light(parse(getComputedStyle(each).color)), light(back(each))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push([each.outerHTML.slice(0, 60), ratio]);
      }
      return poor;
    """
    for theme in ("light", "dark"):
        Select(by(chromium, "#theme")).select_by_value(theme)
        assert chromium.execute_script(measure) == []


@pytest.mark.daily
def test_it_works_with_a_long_name_of_a_model(chromium: webdriver.Chrome) -> None:
    with scripted(served_name="organisation/" + "a-long-name-" * 12) as made:
        resize(chromium, 390, 844)
        open_page(chromium, made.live)
        assert too_wide(chromium) == [] and complaints(chromium) == []


@pytest.mark.daily
def test_large_figures_fit_their_tiles(chromium: webdriver.Chrome, script: Scripted) -> None:
    resize(chromium, 1440, 900)
    open_page(chromium, script.live)
    cut = """
      return [...document.querySelectorAll("#tiles dd")].filter((each) => {
        [each.firstChild.textContent, each.lastChild.textContent] = ["98,765", " tok/s"];
        return each.scrollWidth > each.clientWidth;
      }).length;
    """
    assert chromium.execute_script(cut) == 0
