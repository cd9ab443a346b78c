"""Every view of the page *Tiering*, full and empty, light and dark: axe-core finds nothing serious, on any width.

The page is served alone, without Airflow's frame, over a deployment in which something needs a person. Pictures in the
documentation are taken on the way when UPDATE_PICTURES=1 asks for them.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.model.segments import Depth
from tests.airflow.test_needs_web import asked_about, failed_and_lost
from tests.browser import steps
from tests.browser.conftest import OpenBrowser, Serve
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.orphans import plant_orphan
from tests.doubles.source_tree import ROOT

AXE: Final = ROOT / ".cache" / "axe" / "axe.min.js"
PICTURES: Final = ROOT / "docs" / "images"
VIEWS: Final = ("now", "needs", "quality", "topics", "topic/orders", "retention/orders", "backfill", "limits")
EMPTY: Final = ("now", "needs", "quality", "topics", "topic/orders", "backfill", "limits")
WIDTHS: Final = (400, 1280, 2560)
MAY_SCROLL: Final = {"Verdicts by age and depth"}
"""Frames that may hide a part on a narrow screen, which the keyboard reaches; all other tables fold their rows."""
HIDING: Final = """
  const hides = (each) => each.scrollWidth > each.clientWidth + 1;
  return [...document.querySelectorAll(".scroll")].filter(hides).map((each) => [each.ariaLabel, each.tabIndex]);
"""
RUN: Final = """
  const done = arguments[arguments.length - 1];
  const seen = (each) => [each.id, each.impact, each.nodes.map((node) => `${node.html} | ${node.failureSummary}`)];
  axe.run(document, {resultTypes: ["violations"]}).then(
    (found) => done(found.violations.map(seen)), (error) => done([["axe", "serious", [String(error)]]]));
"""

pytestmark = [
    pytest.mark.integration,
    # Airflow's web application imports a test client.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    return deployed_for(monkeypatch, deployment(tmp_path))


@pytest.fixture
def full(empty: Deployment) -> Deployment:
    """Copied, verified in both depths, one segment damaged, an orphan, a plan that waits, a quota, and a pause."""
    empty.copied("orders", "payments*", "trimmed", run_id="first")
    with empty.open() as app:
        app.configs.alter(ALL_BROKERS, {"tiering.copy.total.max.bytes.per.second": "60KiB"}, author="otto")
        orders, *_ = [one for one in app.adapters.stores.metadata.partitions() if one.topic == "orders"]
        rows = app.adapters.stores.metadata.list_segments(orders)
        app.verification.verify_run("first")
        app.verification.verify_segments(
            {orders: frozenset(row.metadata.remote_log_segment_id for row in rows[:3])}, Depth.DEEP
        )
        damaged = next(path for path in sorted(empty.remote.rglob("*.log")) if "trimmed" in str(path))
        content = damaged.read_bytes()
        damaged.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        trimmed = [one for one in app.adapters.stores.metadata.partitions() if one.topic == "trimmed"]
        for partition in trimmed:
            own = app.adapters.stores.metadata.list_segments(partition)
            app.verification.verify_segments(
                {partition: frozenset(row.metadata.remote_log_segment_id for row in own)}, Depth.DEEP
            )
        plant_orphan(empty.remote)
        app.audit.run("audit")
        app.copying.plan("rest")
        app.sizes.report()
        app.adapters.stores.work.pause("payments.v1-eu", author="olga")
    asked_about(empty)
    return empty


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    return open_browser("--window-size=1280,1000", "--hide-scrollbars", logs=("browser",))


def _opened(browser: webdriver.Chrome, served: tuple[str, str]) -> str:
    address, session = served
    browser.get(f"{address}/nothing")
    browser.add_cookie({"name": "_token", "value": session})
    return f"{address}/tiering/page/"


def _views(browser: webdriver.Chrome, page: str, views: tuple[str, ...], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Show every view in both themes, and wait until it has read what it shows."""
    for theme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )
        for view in views:
            browser.get("about:blank")
            browser.get(f"{page}#{view}")
            steps.wait(browser, lambda shown: "topic" in shown.find_element(By.ID, "facts").text, "first line")
            steps.wait(browser, lambda shown: "Loading" not in shown.find_element(By.TAG_NAME, "main").text, view)
            assert browser.execute_script("return document.documentElement.dataset.theme") == theme
            yield theme, view


def _serious(browser: webdriver.Chrome) -> list[Any]:
    browser.execute_script(AXE.read_text())
    return [found for found in browser.execute_async_script(RUN) if found[1] in ("serious", "critical")]


def _errors(browser: webdriver.Chrome) -> list[str]:
    unseen = ("/nothing", "favicon", "topic?name=orders")
    return [
        line["message"] for line in browser.get_log("browser") if not any(each in line["message"] for each in unseen)
    ]


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: make .cache/axe/axe.min.js fetches it by npm")
@pytest.mark.parametrize("role", ["viewer", "op"])
def test_axe_finds_nothing_serious_in_a_full_platform(
    full: Deployment, serve: Serve, browser: webdriver.Chrome, role: str
) -> None:
    page = _opened(browser, serve("tiering_page", role))
    for theme, view in _views(browser, page, VIEWS):
        for details in browser.find_elements(By.CSS_SELECTOR, "main details"):
            browser.execute_script("arguments[0].open = true", details)
        assert _serious(browser) == [], (theme, view)
        _picture(browser, theme, view, role)
    assert _errors(browser) == []


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: make .cache/axe/axe.min.js fetches it by npm")
def test_axe_finds_nothing_serious_in_an_empty_platform(
    empty: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    for theme, view in _views(browser, page, EMPTY):
        assert _serious(browser) == [], (theme, view)
    assert _errors(browser) == []


def test_no_view_is_wider_than_the_window_and_tables_fold(
    full: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    for width in WIDTHS:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        for theme, view in _views(browser, page, VIEWS):
            shown = browser.execute_script("return document.documentElement.scrollWidth")
            assert shown <= width, (theme, view, width)
            hiding = browser.execute_script(HIDING)
            assert {label for label, _ in hiding} <= MAY_SCROLL, (theme, view, width)
            assert {tab_index for _, tab_index in hiding} <= {0}
            if theme == "light" and width != WIDTHS[1]:
                _picture(browser, str(width), view, "op")


def test_lost_offsets_are_skipped_after_the_question_and_the_author_is_shown(
    empty: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    failed_and_lost(empty)
    page = _opened(browser, serve("tiering_page", "op"))
    browser.get(f"{page}#quality")
    steps.button(browser, "main", "Continue without it…").click()
    steps.element(browser, "#skip-reason").send_keys("agreed in OPS-12")
    steps.button(browser, "form", "Show what would be missing").click()
    steps.button(browser, "main", "Continue without them").click()
    steps.wait(
        browser, lambda shown: "given up by decision" in shown.find_element(By.TAG_NAME, "main").text, "decision"
    )
    browser.get("about:blank")
    browser.get(f"{page}#limits")
    _shows(browser, "agreed in OPS-12", "olga (page Tiering)")


def _shows(browser: webdriver.Chrome, *texts: str) -> None:
    def shown(page: webdriver.Chrome) -> bool:
        return all(text in page.find_element(By.TAG_NAME, "main").text for text in texts)

    steps.wait(browser, shown, str(texts))


def _picture(browser: webdriver.Chrome, kind: str, view: str, role: str) -> None:
    """Save the whole view below the directory that PAGE_PICTURES names, and two of them for the documentation."""
    directory = os.environ.get("PAGE_PICTURES")
    wanted = {("light", "quality"): "quality", ("light", "topic/orders"): "topic"}.get((kind, view))
    if role != "op" or (directory is None and (wanted is None or os.environ.get("UPDATE_PICTURES") != "1")):
        return
    time.sleep(0.3)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    width = browser.execute_script("return document.documentElement.clientWidth")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": min(height, 3_000), "deviceScaleFactor": 1, "mobile": False},
    )
    if directory is not None:
        browser.save_screenshot(str(Path(directory) / f"{view.replace('/', '-')}-{kind}.png"))
    if wanted is not None and os.environ.get("UPDATE_PICTURES") == "1":
        browser.save_screenshot(str(PICTURES / f"tiering-page-{wanted}.png"))
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
