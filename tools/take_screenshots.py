"""Takes docs/images/page.png (light, of the README) and page-dark.png: spark answers a question under some load.

    python -m tools.take_screenshots [FOLDER]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from selenium.webdriver.support.select import Select
from tests.page.browser import browser, by, complaints, resize
from tests.page.steps import ask, open_page, send
from tests.serve.harness import Live, serving

from twostroke.server.build import build_server

SETTINGS = {"kv_memory": "24MB", "threads": 2, "max_step_tokens": 256}
WIDTH, HEIGHT = 1440, 900
REQUESTS, GAP_S, BEFORE_S = 40, 0.1, 2.5
SYSTEM = "You answer in short sentences about inference engines. " * 6


def load(live: Live) -> None:
    """Sends chats with a shared beginning; a third of the requests are long prompts with nothing in common."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        for place in range(REQUESTS):
            pool.submit(_one, live, place)
            time.sleep(GAP_S)


def _one(live: Live, place: int) -> None:
    draw = random.Random(place)
    if place % 3 == 0:
        prompt = [300 + (at * 7 + place * 131) % 900 for at in range(draw.randint(300, 1500))]
        live.complete(prompt=prompt, max_tokens=draw.randint(20, 120), ignore_eos=True)
        return
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Question {place}: what is decode?"},
    ]
    live.chat(messages=messages, max_tokens=draw.randint(60, 250), ignore_eos=True)


def take(live: Live, theme: str, file: Path) -> None:
    """Takes one picture, in the middle of the load."""
    with browser(Path(tempfile.gettempdir())) as driver, ThreadPoolExecutor(1) as pool:
        resize(driver, WIDTH, HEIGHT)
        open_page(driver, live)
        Select(by(driver, "#theme")).select_by_value(theme)
        Select(by(driver, "#window")).select_by_value("5")
        ask(driver, "What is prefill?", 80)
        loading = pool.submit(load, live)
        time.sleep(BEFORE_S)
        ask(driver, "Why is decode memory-bound?", 80)
        send(driver, "What is a KV cache?")
        time.sleep(0.6)  # a frame of the live view
        driver.save_screenshot(str(file))
        loading.result()
        print(file, complaints(driver) or "no complaints")


def main() -> None:
    """Takes the pictures of both themes."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    folder.mkdir(parents=True, exist_ok=True)
    with build_server("spark", SETTINGS) as built, serving(built.parts) as live:
        for theme, name in (("light", "page.png"), ("dark", "page-dark.png")):
            take(live, theme, folder / name)


if __name__ == "__main__":
    main()
