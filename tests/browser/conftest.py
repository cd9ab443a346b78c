"""Headless Chromium for the tests of this folder, which are skipped where it is missing."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from local.ports import free_port
from tests.browser import steps
from tests.doubles.airflow_home import airflow_database
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT

_CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_DRIVER: Final = shutil.which("chromedriver")
_FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip

OpenBrowser = Callable[..., webdriver.Chrome]
Serve = Callable[[str, str], tuple[str, str]]


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


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves a plugin alone, by its factory in `plugin_server`; returns its address, and the session of a user."""
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    airflow_database()
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
    manager: Any = create_auth_manager()
    manager.init()
    with ExitStack() as started:

        def serves(factory: str, role: str) -> tuple[str, str]:
            port = free_port()
            program = ["-m", "uvicorn", "--factory", f"tests.doubles.plugin_server:{factory}", "--port", str(port)]
            server = subprocess.Popen([sys.executable, *program], cwd=ROOT, env=dict(os.environ))
            started.callback(server.wait)
            started.callback(server.terminate)
            eventually(lambda: _listens(port), "the server listens")
            session = manager.generate_jwt(SimpleAuthManagerUser(username="olga", role=role))
            return f"http://127.0.0.1:{port}", session

        yield serves


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


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
