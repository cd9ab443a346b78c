"""Headless Chromium for the tests of this folder, which are skipped where it is missing."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.browser import steps

_CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_DRIVER: Final = shutil.which("chromedriver")
_FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip

OpenBrowser = Callable[..., webdriver.Chrome]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _CHROMIUM is None or _DRIVER is None:
        missing = "no Chromium with its driver here: install the packages chromium and chromium-driver"
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture
def open_browser() -> Iterator[OpenBrowser]:
    """Opens a browser with further flags, and records these kinds of its log. Its files go with the test."""
    # The path of its socket may have 107 characters, more than pytest's directories leave.
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as scratch, ExitStack() as opened:

        def opens(*flags: str, logs: tuple[str, ...] = ()) -> webdriver.Chrome:
            options = webdriver.ChromeOptions()
            options.binary_location = str(_CHROMIUM)
            for flag in (*_FLAGS, *flags, f"--user-data-dir={scratch}/profile"):
                options.add_argument(flag)
            options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
            driver = webdriver.Chrome(options, Service(_DRIVER, env={**os.environ, "TMPDIR": scratch}))
            opened.callback(driver.quit)
            return driver

        yield opens


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up")


@pytest.fixture(scope="module")
def said(home: Path) -> Iterator[dict[str, str]]:
    """What `make up` prints: address, user, where the password is, settings."""
    try:
        yield dict(re.findall(r"^(\w+) +(\S.*?) *$", steps.local("up", home), re.MULTILINE))
    finally:
        steps.local("down", home)
