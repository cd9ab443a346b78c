"""The page of a deletion plan in a browser: a click withdraws the plan, a request of another site does not."""

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from include.tiering.configs.config_store import ConfigEntity, EntityType
from plugins.tiering_airflow.web.expiration import DAG_ID
from tests.browser.conftest import OpenBrowser, Serve
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.patience import eventually

DAG_RUN = "manual__2026-01-01T00:00:00+00:00"
RUN_ID = f"expire-{DAG_RUN}"

pytestmark = [
    pytest.mark.integration,
    # Airflow's web application imports a test client.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    made = deployed_for(monkeypatch, deployment(tmp_path))
    monkeypatch.setenv("TIERING_EXPIRATION__MIN__BYTES", "0")
    made.copied("audit_log", "orders")
    made.expires("audit_log", "orders")
    with made.open() as app:
        for topic in ("audit_log", "orders"):
            app.configs.alter(ConfigEntity(EntityType.TOPICS, topic), {"retention.bytes": "0"}, author="test")
        app.expiration.plan(RUN_ID)
        app.expiration.apply_limits(RUN_ID)
    return made


@pytest.fixture
def address(planned: Deployment, serve: Serve) -> tuple[str, str]:
    """Where the plugin is served, and the session of a user who may change runs."""
    return serve("deletion_plans", "user")


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    return open_browser("--window-size=1200,900", logs=("browser",))


def test_a_click_withdraws_the_plan(
    address: tuple[str, str], planned: Deployment, browser: webdriver.Chrome, tmp_path: Path
) -> None:
    server, session = address
    page = f"{server}/tiering/expiration/dags/{DAG_ID}/runs/{DAG_RUN.replace('+', '%2B')}"
    browser.get(f"{server}/nothing")
    browser.add_cookie({"name": "_token", "value": session})
    browser.get(page)
    assert not browser.find_element(By.TAG_NAME, "button").is_displayed(), "a click alone does not do it"
    browser.find_element(By.TAG_NAME, "summary").click()
    browser.save_screenshot(str(tmp_path / "before.png"))
    browser.find_element(By.TAG_NAME, "button").click()
    said = browser.find_element(By.ID, "said")
    eventually(lambda: "is withdrawn: 13 segments" in said.text, "the page says so")
    with planned.open() as app:
        withdrawal = app.adapters.stores.deletions.run(RUN_ID).withdrawal
    assert withdrawal is not None
    assert withdrawal.author == f"olga (page of {DAG_ID} {DAG_RUN})"
    browser.get(page)
    assert browser.find_elements(By.TAG_NAME, "button") == []
    assert "Withdrawn by olga" in browser.find_element(By.CLASS_NAME, "verdict").text
    browser.save_screenshot(str(tmp_path / "after.png"))
    assert [
        line
        for line in browser.get_log("browser")
        if "/nothing" not in line["message"] and "favicon" not in line["message"]
    ] == []


def test_a_page_of_another_site_cannot(
    address: tuple[str, str], planned: Deployment, browser: webdriver.Chrome
) -> None:
    """With the session in the browser, by a form and by a script."""
    server, session = address
    browser.get(f"{server}/nothing")
    browser.add_cookie({"name": "_token", "value": session})
    other = server.replace("127.0.0.1", "localhost")
    browser.get(f"{other}/nothing")
    send = """
      const done = arguments[arguments.length - 1];
      const headers = {"Content-Type": arguments[1]};
      const sent = fetch(arguments[0], {
        method: "POST", credentials: "include", mode: "no-cors", headers, body: arguments[2]
      });
      sent.then(() => done("sent"), () => done("failed"));
    """
    body = f'{{"dag_run_id": "{DAG_RUN}", "run_id": "{RUN_ID}"}}'
    for kind in ("text/plain", "application/json"):
        browser.execute_async_script(send, f"{server}/tiering/expiration/dags/{DAG_ID}/withdraw", kind, body)
    with planned.open() as app:
        assert app.adapters.stores.deletions.run(RUN_ID).withdrawal is None
