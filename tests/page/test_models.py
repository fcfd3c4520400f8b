"""The menu of models: the models of the server, how far each is loaded, and which one answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.cluster.several_models.several import Several, several
from tests.page.browser import by, complaints, forget, resize, text_of, until
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page, wait_live
from tests.page.test_layout import CUT, too_wide
from tests.retrieval.folders import write_embedding
from twostroke.assets import spark_path

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """spark, which is loaded at the start; the same model under another name; and a model that makes vectors."""
    folder = tmp_path_factory.mktemp("models")
    write_embedding(folder / "vectors")
    shutil.copytree(spark_path(), folder / "second")
    (folder / "models.toml").write_text(
        f"""
[models.spark]
at_start = true
[models.second]
model = "{folder / "second"}"
[models.vectors]
model = "{folder / "vectors"}"
weights = "f32"
"""
    )
    with several(folder / "log", "--models", str(folder / "models.toml")) as made:
        yield made


ROW = """
  const [name, css] = arguments;
  const rows = [...document.querySelectorAll("#models-list li")];
  const row = rows.find((each) => each.innerText.split("\\n")[0].trim() === name);
"""
"""This is one call, because the list is made again whenever a state changes."""


def row(driver: webdriver.Chrome, name: str) -> str:
    """The text of a model's line, "" where there is none."""
    return str(driver.execute_script(f"{ROW} return row?.innerText ?? ''", name))


def press_in(driver: webdriver.Chrome, name: str, css: str) -> None:
    """Presses a button of a model's line as soon as it can be pressed."""
    press = f"{ROW} const found = row?.querySelector(css); found?.click(); return Boolean(found && !found.disabled)"
    until(lambda: driver.execute_script(press, name, css), f"{css} of {name}")


def can_be_chosen(driver: webdriver.Chrome, name: str) -> bool:
    return not driver.execute_script(f"{ROW} return row.querySelector('.open').disabled", name)


@pytest.mark.daily
def test_a_model_is_loaded_chosen_and_unloaded(chromium: webdriver.Chrome, server: Several) -> None:
    forget(chromium, server.url)
    chromium.get(server.url)
    wait_live(chromium)
    until(lambda: text_of(chromium, "#models-name") == "spark", "the model's name")
    by(chromium, "#models-open").click()
    until(lambda: "loaded · " in row(chromium, "spark"), "the list")
    assert "unloaded" in row(chromium, "second")
    press_in(chromium, "second", "[aria-label='Load: second']")
    until(lambda: "loaded · " in row(chromium, "second") and "unloaded" not in row(chromium, "second"), "it")
    press_in(chromium, "vectors", "[aria-label='Load: vectors']")
    until(lambda: "makes vectors" in row(chromium, "vectors"), "a model that writes no answers")
    assert not can_be_chosen(chromium, "vectors")
    for width in (390, 1440):
        resize(chromium, width, 844)
        assert too_wide(chromium) == [] and chromium.execute_script(CUT) == []
    press_in(chromium, "second", ".open")
    until(lambda: text_of(chromium, "#model").startswith("second"), "the other model")
    until(lambda: not by(chromium, "#models").is_displayed(), "the menu to close")
    assert "TTFT" in ask(chromium, "What is prefill?", 20)
    assert text_of(chromium, f"{LAST} .who") == "second"
    until(lambda: "tokens, " in text_of(chromium, "#lanes li:first-child button"), "the lane in the engine of second")
    chromium.refresh()
    wait_live(chromium)
    until(lambda: text_of(chromium, "#models-name") == "second", "the choice, which is kept")
    by(chromium, "#models-open").click()
    until(lambda: "loaded · " in row(chromium, "second"), "the list")
    press_in(chromium, "second", "[aria-label='Unload: second']")
    until(lambda: "unloaded" in row(chromium, "second"), "a model that has left")
    by(chromium, "#models .bar button").click()
    assert "TTFT" in ask(chromium, "What is decode?", 20)  # a question loads it
    assert complaints(chromium) == []


def test_a_server_of_one_model_has_no_menu(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    assert not by(chromium, "#models-open").is_displayed()
    chromium.execute_script("localStorage.setItem('twostroke-model', 'gone')")
    chromium.refresh()
    wait_live(chromium)
    ask(chromium, "hi")
    assert text_of(chromium, f"{LAST} .who") == "org/fake-model"
