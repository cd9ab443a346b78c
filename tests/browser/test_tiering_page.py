"""The page *Tiering* inside of Airflow: a copy is watched, topics are looked up, limits are changed, all is paused.

Pictures in the documentation are taken on the way when UPDATE_PICTURES=1 asks for them.
"""

import json
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from local.secrets_store import READER
from tests.browser import steps
from tests.browser.conftest import OpenBrowser
from tests.doubles.source_tree import ROOT

PICTURES: Final = ROOT / "docs" / "images"
QUOTA: Final = "tiering.copy.total.max.bytes.per.second"
MARKUP: Final = "<img src=x onerror=document.title=1>"
POST: Final = """
  const [path, body, done] = arguments;
  const headers = {"Content-Type": "application/json"};
  const sent = fetch(path, {method: "POST", headers, body: JSON.stringify(body)});
  sent.then(answer => done(answer.status), error => done(String(error)));
"""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
]


@pytest.fixture
def browser(open_browser: OpenBrowser) -> Iterator[webdriver.Chrome]:
    """Its log has nothing of the page but Chromium's opinion of the frame, which is Airflow's."""
    made = open_browser("--window-size=1400,1000", logs=("browser",))
    yield made
    said = [line["message"] for line in made.get_log("browser") if "/tiering/page" in line["message"]]
    refused = ("escape its sandboxing", "status of 400", "status of 403")
    assert [message for message in said if not any(known in message for known in refused)] == []


def _open(browser: webdriver.Chrome, said: dict[str, str], user: str | None = None) -> None:
    steps.log_in(browser, said, user)
    steps.element(browser, "a[href$='/plugin/tiering']").click()
    browser.switch_to.frame(steps.element(browser, "iframe[title=Tiering]"))
    steps.wait(browser, lambda page: "topic" in page.find_element(By.ID, "facts").text, "first line of the page")


def _sees(browser: webdriver.Chrome, *texts: str, css: str = "main") -> None:
    def shows(page: webdriver.Chrome) -> bool:
        shown = page.find_element(By.CSS_SELECTOR, css).text
        return all(text in shown for text in texts)

    steps.wait(browser, shows, f"{texts} in {css}")


def _view(browser: webdriver.Chrome, name: str) -> None:
    steps.element(browser, f"nav a[data-view={name}]").click()
    steps.wait(
        browser,
        lambda page: page.find_element(By.CSS_SELECTOR, f"nav a[data-view={name}][aria-current]"),
        f"view {name}",
    )


def _set(browser: webdriver.Chrome, kind: str, name: str, config: str, value: str) -> None:
    """Fill in the form of the view *Limits and changes*, and confirm what it says."""
    Select(steps.element(browser, "#type")).select_by_value(kind)
    for field, text in (("#entity", name), ("#value", value)):
        steps.element(browser, field).clear()
        steps.element(browser, field).send_keys(text)
    Select(steps.element(browser, "#config")).select_by_value(config)
    steps.button(browser, "form", "Set…").click()
    for_what = f"{kind.removesuffix('s')} {name}" if name else f"{kind}, default"
    steps.button(browser, "main", f"Set {config} to {value} for {for_what}").click()


def _quota(said: dict[str, str], value: str) -> None:
    brokers = ("--entity-type", "brokers", "--entity-default")
    steps.app(said, "configs", "--alter", *brokers, "--add-config", f"{QUOTA}={value}")


def _post(browser: webdriver.Chrome, path: str, body: Any) -> Any:
    return browser.execute_async_script(POST, path, body)


def _picture(browser: webdriver.Chrome, name: str) -> None:
    if os.environ.get("UPDATE_PICTURES") == "1":
        time.sleep(2.5)  # The page reads every two seconds.
        browser.save_screenshot(str(PICTURES / f"tiering-page-{name}.png"))


def test_a_copy_is_watched_and_its_topics_are_looked_up(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _quota(said, "60KiB")
    _open(browser, said)
    _sees(browser, "Nothing is tiered yet", "Nothing is paused")
    _sees(browser, "0 topics", "nothing verified yet", "unknown how much waits", css="#facts")
    assert _post(browser, "/api/v2/dags/tiering_copy/dagRuns", {"logical_date": None}) == 200
    steps.element(browser, "progress")
    _sees(browser, "running batch", "60.0 KiB/s", "remote_log_copier", "left at this rate")
    _picture(browser, "now")
    if os.environ.get("UPDATE_PICTURES") == "1":
        dark = "window.parent.document.documentElement.className = arguments[0] ? 'dark' : 'light'"
        browser.execute_script(dark, True)
        _picture(browser, "dark")
        browser.execute_script(dark, False)
    _quota(said, "20MiB")
    _sees(browser, "Nothing is running")
    totals = json.loads(steps.app(said, "status", "--json"))["totals"]
    assert totals["topics"] > 5
    shown = f"{totals['finished_bytes'] / 2**20:.1f} MiB remote"
    _sees(browser, f"{totals['topics']} topics", shown, "100 % safe", "nothing paused", css="#facts")

    _view(browser, "topics")
    steps.element(browser, "#search").send_keys("ORD")
    _sees(browser, "Topics 1 to 1 of 1.", "orders")
    steps.element(browser, "main td a").click()
    _sees(browser, "Topic id", "By leader epoch", "retention.ms", "./tiering doctor orders")
    browser.execute_script("history.back()")
    _sees(browser, "Topics 1 to 1 of 1.")
    steps.element(browser, "#search").clear()
    steps.element(browser, "#search").send_keys("nothing has this name")
    _sees(browser, "No topic has this in its name.")


def test_a_limit_is_changed_and_all_topics_are_paused(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _open(browser, said)
    _view(browser, "limits")
    _set(browser, "brokers", "", QUOTA, "50MiB")
    _sees(browser, "1 config changed", "50.0 MiB/s (52428800 bytes a second)", "admin (page Tiering)")
    _picture(browser, "limits")
    _set(browser, "brokers", "", QUOTA, "many")
    _sees(browser, "Nothing was changed as far as is known", "many")
    _set(browser, "clients", MARKUP, "tiering.fetch.max.bytes.per.second", "1MiB")
    _sees(browser, f"client {MARKUP}", "1.0 MiB/s (1048576 bytes a second)")
    assert browser.find_elements(By.TAG_NAME, "img") == []

    _view(browser, "now")
    steps.button(browser, "main", "Pause all topics").click()
    _sees(browser, "All topics are paused.")
    _sees(browser, "all topics paused", css="#facts")
    assert json.loads(steps.app(said, "status", "--json"))["paused_topics"] == ["*"]
    steps.button(browser, "main", "Resume all topics").click()
    _sees(browser, "Nothing is paused.")
    assert json.loads(steps.app(said, "status", "--json"))["paused_topics"] == []


def test_a_viewer_sees_all_and_changes_nothing(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _open(browser, said, READER)
    _sees(browser, "To pause or resume takes the permission")
    _view(browser, "limits")
    _sees(browser, "To change a value takes the permission", QUOTA)
    assert browser.find_elements(By.CSS_SELECTOR, "main button") == []
    change = {"entity_type": "brokers", "entity_name": None, "name": QUOTA, "value": "1MiB"}
    for path, body in (("pause", {"topic": None, "paused": True}), ("limits", change)):
        assert _post(browser, f"/tiering/page/{path}", body) == 403
