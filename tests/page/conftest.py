"""Chromium for the tests of this folder. Without it they do not run, and the end of the run reports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.page.browser import CHROMIUM, DRIVER, browser, complaints
from tests.page.scripted import Scripted, scripted
from tests.serve.harness import Live, serving
from twostroke.server.build import build_server
from twostroke.text.talk.catalog import FORMATS

HERE = Path(__file__).parent
NOT_RUN = (
    f"NOT RUN: the page in a real browser; {CHROMIUM} or {DRIVER} is not there (Debian: chromium, chromium-driver)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM.exists() and DRIVER.exists():
        return
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason=NOT_RUN))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any("NOT RUN" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(NOT_RUN, yellow=True, bold=True)


@pytest.fixture(scope="module")
def spark() -> Iterator[Live]:
    settings = {"kv_memory": "20MB", "threads": 1, "max_step_tokens": 128, "ttft": "2s", "itl": "100ms"}
    with build_server("spark", settings) as built, serving(built.parts) as live:
        yield live


@pytest.fixture(scope="module")
def patient() -> Iterator[Live]:
    """A server without objectives, which reads prompts in order of arrival."""
    settings = {"kv_memory": "40MB", "threads": 1, "max_step_tokens": 128}
    with build_server("spark", settings) as built, serving(built.parts) as live:
        yield live


@pytest.fixture
def script() -> Iterator[Scripted]:
    """A server whose answers the test writes."""
    with scripted() as made:
        yield made


@pytest.fixture
def thinking() -> Iterator[Scripted]:
    """The same with a model that reasons first."""
    with scripted(format=FORMATS["hermes"]) as made:
        yield made


@pytest.fixture(scope="session")
def one_chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One process for all tests; `chromium` is what they take."""
    with browser(tmp_path_factory.mktemp("downloads")) as driver:
        yield driver


@pytest.fixture
def chromium(one_chromium: webdriver.Chrome, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """Downloads go to tmp_path. The browser leaves the page at the end, so that no stream of it holds up its server."""
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    one_chromium.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    one_chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    complaints(one_chromium)
    yield one_chromium
    one_chromium.get("about:blank")
