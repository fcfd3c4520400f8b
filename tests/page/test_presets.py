"""Settings under a name."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.page.browser import by, set_value
from tests.page.scripted import Scripted
from tests.page.steps import ask, open_page, wait_live

pytestmark = pytest.mark.browser


def names(driver: webdriver.Chrome) -> list[str]:
    return [each.text for each in Select(by(driver, "#preset")).options]


def test_a_preset_has_the_system_prompt_and_the_sampling(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    chromium.execute_script("localStorage.setItem('twostroke-presets', '[1]')")  # a damaged value
    chromium.refresh()
    wait_live(chromium)
    by(chromium, "#settings-open").click()
    assert names(chromium) == ["No preset"]
    for name, system, temperature in (("poet", "Rhyme.", "1.5"), ("clerk", "Be brief.", "0")):
        set_value(chromium, "#setting-system", system)
        set_value(chromium, "#setting-temperature", temperature)
        by(chromium, "#preset-name").send_keys(name, Keys.ENTER)
    by(chromium, "#settings-reset").click()
    chromium.refresh()
    wait_live(chromium)
    by(chromium, "#settings-open").click()
    assert names(chromium) == ["No preset", "poet", "clerk"]
    Select(by(chromium, "#preset")).select_by_value("poet")
    assert by(chromium, "#setting-system").get_attribute("value") == "Rhyme."
    by(chromium, "#settings .bar button").click()
    ask(chromium, "hi")
    assert script.last_text.startswith("system: Rhyme.\n") and script.last.params.temperature == 1.5
    by(chromium, "#settings-open").click()
    by(chromium, ".presets button").click()
    assert names(chromium) == ["No preset", "clerk"]
