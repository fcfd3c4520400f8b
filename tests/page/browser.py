"""A real Chromium without a window, and functions that tell what it shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
WAIT_S = 60.0


@contextmanager
def browser(downloads: Path, size: tuple[int, int] = (1360, 1500)) -> Iterator[webdriver.Chrome]:
    """A browser that quits at the end, whatever happens. `complaints` reads the errors of its console."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(flag)
    options.add_argument(f"--window-size={size[0]},{size[1]}")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def until(true: Callable[[], Any], what: str) -> Any:
    """Polls. Fails after WAIT_S, with the awaited condition in the message."""
    deadline = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.05)
    return found


def by(driver: webdriver.Chrome, css: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, css)


def text_of(driver: webdriver.Chrome, css: str) -> str:
    """All text of an element, "" where it is not there. It is one call, so a page that changes causes no error."""
    return str(driver.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", css))


def texts_of(driver: webdriver.Chrome, css: str) -> list[str]:
    """The texts of all these elements, in one call for the same reason."""
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText.trim())", css
    )
    return found


def colours_in(driver: webdriver.Chrome, css: str) -> int:
    """The different colours of a canvas, which show whether it is painted at all."""
    script = """
      const canvas = document.querySelector(arguments[0]);
      const data = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
      return new Set(data).size;
    """
    return int(driver.execute_script(script, css))


def complaints(driver: webdriver.Chrome) -> list[str]:
    """The errors of the console since the last call: scripts that failed, and what the policy stopped."""
    return [json.dumps(entry) for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Sets the page's own size, also below the least size of a window, until the test's end."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def forget(driver: webdriver.Chrome, url: str) -> None:
    """Removes what pages of this address have kept."""
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": url.rstrip("/"), "storageTypes": "all"})


def set_value(driver: webdriver.Chrome, css: str, value: str) -> None:
    """Sets a value like a user who types it and leaves the field, in one call."""
    found = """
      const field = document.querySelector(arguments[0]);
      field.value = arguments[1];
      field.dispatchEvent(new Event("change"));
    """
    driver.execute_script(found, css, value)


def box(driver: webdriver.Chrome, css: str) -> dict[str, float]:
    """The place and the size in the window."""
    found: dict[str, float] = driver.execute_script(
        "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", css
    )
    return found
