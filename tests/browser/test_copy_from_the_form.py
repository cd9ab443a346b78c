"""A person's way: start the platform, log in at the address it prints, copy from the form, pause, resume, stop.

The picture in the documentation is taken on the way when UPDATE_PICTURES=1 asks for it.
"""

import json
import os
import re
from pathlib import Path

import psutil
import pytest
from selenium import webdriver

from local.layout import Layout
from local.processes import family
from tests.browser import steps
from tests.browser.conftest import OpenBrowser
from tests.doubles.source_tree import ROOT

PICTURE = ROOT / "docs" / "images" / "tiering-copy-run.png"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
]


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    return open_browser("--window-size=1400,900")


def test_copy_from_the_form_pause_and_resume(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    steps.log_in(browser, said)
    steps.app(said, "pause")

    browser.get(f"{said['address']}/dags/tiering_copy")
    steps.element(browser, "[data-testid=trigger-dag-button], #trigger-dag-button, [aria-label='Trigger Dag']").click()
    steps.element(browser, "[role=dialog] textarea[name=element_topics]").send_keys("orders\naudit_log\ntrimmed")
    steps.button(browser, "[role=dialog]", "Trigger").click()

    def waits_for_the_pause(page: webdriver.Chrome) -> bool:
        tasks = steps.ask(page, "/dags/tiering_copy/dagRuns/~/taskInstances")["task_instances"]
        return ("ready", "deferred") in {(task["task_id"], task["state"]) for task in tasks}

    steps.wait(browser, waits_for_the_pause, "run that waits for the pause to end")
    (run,) = steps.ask(browser, "/dags/tiering_copy/dagRuns")["dag_runs"]
    assert run["conf"]["topics"] == ["orders", "audit_log", "trimmed"]
    browser.get(f"{said['address']}/pools")
    steps.wait(browser, lambda page: "remote_log_copier" in page.page_source, "pool on its page")
    assert json.loads(steps.app(said, "sizes", "--json"))["partitions"] == []

    browser.get(f"{said['address']}/dags/tiering_copy/runs/{run['dag_run_id']}")
    steps.wait(browser, lambda page: "quality_gate" in page.page_source, "run page")
    if os.environ.get("UPDATE_PICTURES") == "1":
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(PICTURE))

    steps.app(said, "resume")
    steps.wait(browser, lambda page: _run_state(page) in ("success", "failed"), "end of the run")
    assert _run_state(browser) == "success"
    assert len(json.loads(steps.app(said, "sizes", "--json"))["partitions"]) == 5

    browser.get(f"{said['address']}/dags/tiering_copy/runs/{run['dag_run_id']}")
    steps.element(browser, "a[href$='/plugin/tiering-quality-run']").click()
    browser.switch_to.frame(steps.element(browser, "iframe[title=Quality]"))
    assert re.fullmatch(r"All \d+ segments passed", steps.element(browser, ".verdict").text)
    browser.switch_to.default_content()


def _run_state(browser: webdriver.Chrome) -> str:
    return str(steps.ask(browser, "/dags/tiering_copy/dagRuns")["dag_runs"][0]["state"])


def test_stopping_leaves_no_process(said: dict[str, str], home: Path) -> None:
    mark = str(Layout.below(home.resolve()).airflow_home)
    assert family([], mark)
    steps.local("down", home)
    assert family([], mark) == set()
    address = said["address"].rpartition(":")[2]
    listening = {c.laddr.port for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert int(address) not in listening
