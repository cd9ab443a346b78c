"""What the page *Tiering* does not know it does not claim, and what a click does is said before it is done.

The page is served alone, without Airflow's frame. Where a state would take days or another person, some members of an
answer are replaced in the browser.
"""

import json
import time
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from include.tiering.configs.config_store import ConfigEntity, EntityType
from plugins.tiering_airflow.web.needs import READ_SECONDS
from tests.browser import steps
from tests.browser.conftest import OpenBrowser, Serve
from tests.doubles.airflow_home import Deployment, deployed_for, deployment

REPLACED: Final = """
  const isLeaf = (changes) => changes === null || typeof changes !== "object" || Array.isArray(changes);
  const merged = (content, changes) => isLeaf(changes) ? changes
    : Object.fromEntries([...new Set([...Object.keys(content), ...Object.keys(changes)])].map((name) =>
      [name, name in changes ? merged(content[name] ?? {}, changes[name]) : content[name]]));
  const real = window.fetch;
  window.changes = CHANGES;
  window.sent = [];
  window.fetch = async (path, request = {}) => {
    window.sent.push([request.method ?? "GET", String(path)]);
    const answer = await real(path, request);
    const changes = window.changes[String(path).split("?")[0]];
    if (!changes) return answer;
    return new Response(JSON.stringify(merged(await answer.json(), changes)), { status: answer.status });
  };
"""
HASTY: Final = """
  const [first, words] = arguments;
  first.click();
  [...document.querySelectorAll("main button")].find((each) => each.textContent === words).click();
"""
STALLED: Final = {
    "topic": "orders",
    "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
    "handover_id": "BBBBBBBBBBBBBBBBBBBBBB",
    "step": "copy",
    "state": "active",
    "since_ms": 1,
    "message": "The handover of orders stands still.",
    "runbook": "docs/runbook.md#a-handover-stands-still",
}

pytestmark = [
    pytest.mark.integration,
    # Airflow's web application imports a test client.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return deployed_for(monkeypatch, deployment(tmp_path_factory.mktemp("platform")))


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    return open_browser("--window-size=1280,1000")


def _opened(browser: webdriver.Chrome, served: tuple[str, str], changes: Any = None) -> str:
    address, session = served
    browser.get(f"{address}/nothing")
    browser.add_cookie({"name": "_token", "value": session})
    script = REPLACED.replace("CHANGES", json.dumps(changes or {}))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    return f"{address}/tiering/page/"


def _retention_form(platform: Deployment, serve: Serve, browser: webdriver.Chrome) -> str:
    """Copy the topic, open its retention as a user who may set it, and return the address of the page."""
    platform.copied("orders")
    page = _opened(browser, serve("tiering_page", "op"))
    browser.get(f"{page}#retention/orders")
    _shows(browser, "These are the present values.")
    return page


def _shows(browser: webdriver.Chrome, *texts: str, within: str = "body") -> None:
    def shown(page: webdriver.Chrome) -> bool:
        return all(text in page.find_element(By.CSS_SELECTOR, within).text for text in texts)

    steps.wait(browser, shown, str(texts))


def test_before_any_run_nothing_is_called_in_order(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    browser.get(f"{page}#needs")
    unknown = "Not known: no audit has compared the store", "Not known: no copy was planned yet."
    _shows(browser, "Nothing is known to need a person", *unknown)
    _shows(browser, "no audit yet", "nothing verified yet", within="#facts")
    platform.copied("orders")
    with platform.open() as app:
        app.audit.run("audit")
    time.sleep(READ_SECONDS)  # The page reads once when it is opened; until then it would get the answer of before.
    browser.get("about:blank")
    browser.get(f"{page}#needs")
    _shows(browser, "Nothing needs a person", "No finding of an audit is open.", "left nothing to a person")
    _shows(browser, "0 findings", within="#facts")


def test_what_was_copied_since_the_last_count_is_not_safe_and_old_numbers_say_their_age(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    platform.copied("orders")
    with platform.open() as app:
        finished = app.operations.overview.now().totals.finished_bytes
    old = {"value": finished // 4, "as_of_ms": 1_000}
    changes = {"now": {"totals": {"judged_bytes": old, "safe_bytes": old, "findings": {"value": 0, "as_of_ms": 1_000}}}}
    page = _opened(browser, serve("tiering_page", "viewer"), changes)
    browser.get(page)
    _shows(browser, "of the remote bytes are safe, as of", "0 findings, as of", within="#facts")
    facts = browser.find_element(By.ID, "facts").text
    assert f"{int(1000 * (finished // 4) / finished) / 10:g} % of the remote bytes" in facts, facts


def test_a_preview_of_some_partitions_says_that_the_value_holds_for_all(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    _retention_form(platform, serve, browser)
    browser.find_element(By.ID, "partitions").send_keys("0")
    browser.find_element(By.ID, "retention_bytes").send_keys("64GiB")
    steps.button(browser, "main", "Set retention.bytes of orders to 64.0 GiB of each partition…").click()
    _shows(browser, "Of these partitions alone, the next run deletes nothing by it.", "holds for 1 more partition, too")
    _shows(browser, "It may delete more: for retention.bytes, what is only on brokers counts, too")


def test_days_less_of_a_retention_that_is_no_whole_hour_are_previewed(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    platform.copied("orders")
    with platform.open() as app:
        app.configs.alter(ConfigEntity(EntityType.TOPICS, "orders"), {"retention.ms": "2592000001"}, author="olga")
    page = _opened(browser, serve("tiering_page", "op"))
    browser.get(f"{page}#retention/orders")
    steps.button(browser, "main", "7 days less").click()
    _shows(browser, "Set retention.ms of orders to 23 d…")
    assert browser.find_element(By.ID, "retention_ms").get_property("value") == str(2592000001 - 7 * 86_400_000)


def test_a_number_without_a_unit_is_confirmed_with_its_unit(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    platform.copied("orders")
    page = _opened(browser, serve("tiering_page", "op"))
    browser.get(f"{page}#limits/topics/orders/retention.ms")
    steps.element(browser, "#value").send_keys("7")
    steps.button(browser, "form", "Set…").click()
    steps.button(browser, "main", "Set retention.ms to 7 milliseconds for topic orders")
    _shows(browser, "cannot be brought back: preview it")
    assert browser.find_element(By.LINK_TEXT, "preview it").get_attribute("href").endswith("#retention/orders")
    Select(steps.element(browser, "#type")).select_by_value("brokers")
    steps.element(browser, "#entity").clear()
    Select(steps.element(browser, "#config")).select_by_value("tiering.copy.total.max.bytes.per.second")
    steps.element(browser, "#value").clear()
    steps.element(browser, "#value").send_keys("50000000")
    steps.button(browser, "form", "Set…").click()
    words = "Set tiering.copy.total.max.bytes.per.second to 47.7 MiB/s (50000000 bytes a second) for brokers, default"
    steps.button(browser, "main", words)


def test_a_double_click_and_a_held_key_confirm_nothing(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _retention_form(platform, serve, browser)
    browser.find_element(By.ID, "retention_bytes").send_keys("64GiB")
    words = "Set retention.bytes of orders to 64.0 GiB of each partition"
    first = steps.button(browser, "main", f"{words}…")
    browser.execute_script(HASTY, first, words)
    steps.button(browser, "main", words)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    first = steps.button(browser, "main", f"{words}…")
    first.send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys(Keys.ENTER, Keys.ENTER)
    steps.button(browser, "main", words)
    browser.get(f"{page}#limits/topics/orders/retention.bytes")
    steps.element(browser, "#value").send_keys("64GiB", Keys.ENTER)
    browser.switch_to.active_element.send_keys(Keys.ENTER, Keys.ENTER)
    button = steps.button(browser, "main", "Set retention.bytes to 64GiB for topic orders")
    posted = [path for method, path in browser.execute_script("return window.sent") if method == "POST"]
    assert posted == []
    button.click()
    _shows(browser, "1 config changed")


def test_a_handover_that_was_ended_meanwhile_is_not_begun_again(
    platform: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"), {"attention": {"handovers": [STALLED]}})
    browser.get(f"{page}#needs")
    steps.button(browser, "main", "Continue…").click()
    browser.execute_script("window.changes = {}")
    steps.button(browser, "main", "Continue the handover of orders").click()
    _shows(browser, "not done as far as is known: it does not stand still any more", "No handover stands still.")
    assert not [path for method, path in browser.execute_script("return window.sent") if method == "POST"]
    browser.execute_script("window.changes = arguments[0]", {"attention": {"handovers": [STALLED]}})
    steps.button(browser, "main", "Read again").click()
    steps.button(browser, "main", "Continue…").click()
    steps.button(browser, "main", "Continue the handover of orders").click()
    _shows(browser, "Continue the handover of orders: not done as far as is known: Not Found")
    posted = [path for method, path in browser.execute_script("return window.sent") if method == "POST"]
    assert posted == ["/api/v2/dags/tiering_handover/dagRuns"]
