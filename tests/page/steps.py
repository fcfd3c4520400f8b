"""What users do on the page, in words."""

from __future__ import annotations

from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.page.browser import by, forget, set_value, text_of, until
from tests.serve.harness import Live

LAST = "#messages li.assistant:last-child"
FIGURES = f"{LAST} .figures"


def open_page(driver: webdriver.Chrome, live: Live) -> None:
    """A first visit: nothing is kept from before."""
    forget(driver, live.url)
    driver.get(live.url)
    wait_live(driver)
    driver.execute_script("sessionStorage.clear()")


def wait_live(driver: webdriver.Chrome) -> None:
    """Until frames come."""
    until(lambda: text_of(driver, "#state") == "live", "frames")


def wait_answer(driver: webdriver.Chrome) -> None:
    """Until the page takes the next question: the answer is there, and so are its figures."""
    until(lambda: driver.execute_script("return document.getElementById('stop').hidden"), "the end of the answer")


def send(driver: webdriver.Chrome, text: str) -> None:
    """With the keyboard."""
    by(driver, "#question").send_keys(text, Keys.ENTER)


def ask(driver: webdriver.Chrome, text: str, most: int = 40) -> str:
    """Send, wait for the end; the answer's figures."""
    set_value(driver, "#setting-max_tokens", str(most))
    send(driver, text)
    wait_answer(driver)
    return text_of(driver, FIGURES)
