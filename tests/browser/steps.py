"""What a person does in the browser and with the commands of a platform that `make up` started."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.doubles.source_tree import ROOT

_PATIENCE_SECONDS: Final = 120


def local(command: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"local.{command}", "--home", str(home)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait(browser: webdriver.Chrome, until: Callable[[webdriver.Chrome], Any], what: str) -> Any:
    return WebDriverWait(browser, _PATIENCE_SECONDS, ignored_exceptions=[Exception]).until(until, f"no {what} was seen")


def element(browser: webdriver.Chrome, css: str) -> WebElement:
    found: WebElement = wait(browser, lambda page: page.find_element(By.CSS_SELECTOR, css), css)
    return found


def button(browser: webdriver.Chrome, within: str, text: str) -> WebElement:
    def find(page: webdriver.Chrome) -> WebElement | None:
        buttons = page.find_elements(By.CSS_SELECTOR, f"{within} button")
        return next((each for each in buttons if each.text.strip() == text and each.is_enabled()), None)

    found: WebElement = wait(browser, find, f"button {text}")
    return found


def log_in(browser: webdriver.Chrome, said: dict[str, str], user: str | None = None) -> None:
    user = user or said["user"]
    password = json.loads(Path(said["password"].removeprefix("in ")).read_text())[user]
    browser.get(said["address"])
    element(browser, "input[name=username]").send_keys(user)
    browser.find_element(By.NAME, "password").send_keys(password)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    wait(browser, lambda page: "/auth/login" not in page.current_url, "page behind the login")


def ask(browser: webdriver.Chrome, path: str) -> Any:
    """A question to Airflow's API with the session of the page."""
    script = "const [path, done] = arguments; fetch('/api/v2' + path).then(a => a.json()).then(done, e => done(null))"
    return browser.execute_async_script(script, path)


def app(said: dict[str, str], *arguments: str) -> str:
    config = said["settings"].split()[1].removeprefix("TIERING_CONFIG=")
    command = [str(ROOT / "tiering"), "--config", config, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
