"""A person's way: start the platform, log in at the address it prints, copy from the form, pause, resume, stop.

The picture in the documentation is taken on the way when UPDATE_PICTURES=1 asks for it.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from local.layout import Layout
from local.processes import family
from tests.browser.conftest import OpenBrowser
from tests.doubles.source_tree import ROOT

PICTURE = ROOT / "docs" / "images" / "tiering-copy-run.png"
PATIENCE_SECONDS = 120

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
]


def _local(command: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"local.{command}", "--home", str(home)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up")


@pytest.fixture(scope="module")
def said(home: Path) -> Iterator[dict[str, str]]:
    """What `make up` prints: address, user, where the password is, settings."""
    try:
        yield dict(re.findall(r"^(\w+) +(\S.*?) *$", _local("up", home), re.MULTILINE))
    finally:
        _local("down", home)


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    return open_browser("--window-size=1400,900")


def _wait(browser: webdriver.Chrome, until: Callable[[webdriver.Chrome], Any], what: str) -> Any:
    return WebDriverWait(browser, PATIENCE_SECONDS, ignored_exceptions=[Exception]).until(until, f"no {what} was seen")


def _element(browser: webdriver.Chrome, css: str) -> WebElement:
    found: WebElement = _wait(browser, lambda page: page.find_element(By.CSS_SELECTOR, css), css)
    return found


def _button(browser: webdriver.Chrome, within: str, text: str) -> WebElement:
    def find(page: webdriver.Chrome) -> WebElement | None:
        buttons = page.find_elements(By.CSS_SELECTOR, f"{within} button")
        return next((button for button in buttons if button.text.strip() == text and button.is_enabled()), None)

    found: WebElement = _wait(browser, find, f"button {text}")
    return found


def _log_in(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    password = json.loads(Path(said["password"].removeprefix("in ")).read_text())[said["user"]]
    browser.get(said["address"])
    _element(browser, "input[name=username]").send_keys(said["user"])
    browser.find_element(By.NAME, "password").send_keys(password)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    _wait(browser, lambda page: "/auth/login" not in page.current_url, "page behind the login")


def _ask(browser: webdriver.Chrome, path: str) -> Any:
    """A question to Airflow's API with the session of the page."""
    script = "const [path, done] = arguments; fetch('/api/v2' + path).then(a => a.json()).then(done, e => done(null))"
    return browser.execute_async_script(script, path)


def _app(said: dict[str, str], *arguments: str) -> str:
    config = said["settings"].split()[1].removeprefix("TIERING_CONFIG=")
    command = [str(ROOT / "tiering"), "--config", config, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_copy_from_the_form_pause_and_resume(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _log_in(browser, said)
    _app(said, "pause")

    browser.get(f"{said['address']}/dags/tiering_copy")
    _element(browser, "[data-testid=trigger-dag-button], #trigger-dag-button, [aria-label='Trigger Dag']").click()
    _element(browser, "[role=dialog] textarea[name=element_topics]").send_keys("orders\naudit_log\ntrimmed")
    _button(browser, "[role=dialog]", "Trigger").click()

    def waits_for_the_pause(page: webdriver.Chrome) -> bool:
        tasks = _ask(page, "/dags/tiering_copy/dagRuns/~/taskInstances")["task_instances"]
        return ("ready", "deferred") in {(task["task_id"], task["state"]) for task in tasks}

    _wait(browser, waits_for_the_pause, "run that waits for the pause to end")
    (run,) = _ask(browser, "/dags/tiering_copy/dagRuns")["dag_runs"]
    assert run["conf"]["topics"] == ["orders", "audit_log", "trimmed"]
    browser.get(f"{said['address']}/pools")
    _wait(browser, lambda page: "remote_log_copier" in page.page_source, "pool on its page")
    assert json.loads(_app(said, "sizes", "--json"))["partitions"] == []

    browser.get(f"{said['address']}/dags/tiering_copy/runs/{run['dag_run_id']}")
    _wait(browser, lambda page: "quality_gate" in page.page_source, "run page")
    if os.environ.get("UPDATE_PICTURES") == "1":
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(PICTURE))

    _app(said, "resume")
    _wait(browser, lambda page: _run_state(page) in ("success", "failed"), "end of the run")
    assert _run_state(browser) == "success"
    assert len(json.loads(_app(said, "sizes", "--json"))["partitions"]) == 5

    browser.get(f"{said['address']}/dags/tiering_copy/runs/{run['dag_run_id']}")
    _element(browser, "a[href$='/plugin/tiering-quality-run']").click()
    browser.switch_to.frame(_element(browser, "iframe[title=Quality]"))
    assert re.fullmatch(r"All \d+ segments passed", _element(browser, ".verdict").text)
    browser.switch_to.default_content()


def _run_state(browser: webdriver.Chrome) -> str:
    return str(_ask(browser, "/dags/tiering_copy/dagRuns")["dag_runs"][0]["state"])


def test_stopping_leaves_no_process(said: dict[str, str], home: Path) -> None:
    mark = str(Layout.below(home.resolve()).airflow_home)
    assert family([], mark)
    _local("down", home)
    assert family([], mark) == set()
    address = said["address"].rpartition(":")[2]
    listening = {c.laddr.port for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert int(address) not in listening
