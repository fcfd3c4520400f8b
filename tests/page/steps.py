"""What users do on the page."""

from __future__ import annotations

from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.page.browser import by, forget, set_value, text_of, until
from tests.serve.harness import Live

LAST = "#messages li.assistant:last-child"
FIGURES = f"{LAST} .figures"


def open_page(driver: webdriver.Chrome, live: Live) -> None:
    """Opens the page like a first visit: nothing is kept from before."""
    forget(driver, live.url)
    driver.get(live.url)
    wait_live(driver)
    driver.execute_script("sessionStorage.clear()")


def wait_live(driver: webdriver.Chrome) -> None:
    """Waits until frames come."""
    until(lambda: text_of(driver, "#state") == "live", "frames")


def wait_answer(driver: webdriver.Chrome) -> None:
    """Waits until the page takes the next question: the answer and its figures are there."""
    until(lambda: driver.execute_script("return document.getElementById('stop').hidden"), "the end of the answer")


def send(driver: webdriver.Chrome, text: str) -> None:
    """Sends a question with the keyboard."""
    by(driver, "#question").send_keys(text, Keys.ENTER)


def ask(driver: webdriver.Chrome, text: str, most: int = 40) -> str:
    """Sends a question and waits for the end. Returns the answer's figures."""
    set_value(driver, "#setting-max_tokens", str(most))
    send(driver, text)
    wait_answer(driver)
    return text_of(driver, FIGURES)
