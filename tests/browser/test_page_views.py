"""Every view and state of the page *Tiering*, light and dark: axe-core finds nothing serious, on any width.

The page is served alone, without Airflow's frame, over a deployment in which something needs a person. Pictures in the
documentation are taken on the way when UPDATE_PICTURES=1 asks for them.
"""

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools import COPIER_POOL
from include.tiering.copying.metrics import HELD_BACK
from include.tiering.model.segments import Depth
from include.tiering.units import format_utc
from tests.airflow.test_needs_web import asked_about, failed_and_lost
from tests.browser import steps
from tests.browser.conftest import OpenBrowser, Serve
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.orphans import plant_orphan
from tests.doubles.source_tree import ROOT

AXE: Final = ROOT / ".cache" / "axe" / "axe.min.js"
PICTURES: Final = ROOT / "docs" / "images"
VIEWS: Final = ("now", "needs", "quality", "topics", "topic/orders", "retention/orders", "backfill", "limits")
WIDTHS: Final = (400, 1280, 2560)
THEMES: Final = ("light", "dark")
UPDATES: Final = os.environ.get("UPDATE_PICTURES") == "1"
DOCUMENTED: Final = {("light", "quality"): "quality", ("light", "topic/orders"): "topic", ("400", "now"): "narrow"}
MARKUP: Final = "<img src=x onerror=document.title=1>"
MAY_SCROLL: Final = {"Verdicts by age and depth"}
"""Frames that may hide a part on a narrow screen, which the keyboard reaches; all other tables fold their rows."""
HIDING: Final = """
  const hides = (each) => each.scrollWidth > each.clientWidth + 1;
  return [...document.querySelectorAll(".scroll")].filter(hides).map((each) => [each.ariaLabel, each.tabIndex]);
"""
HEADLESS: Final = """
  // Cells of folded rows that leave no room for their heads.
  const hasRoom = (cell) => parseFloat(getComputedStyle(cell).paddingLeft) >= 100;
  return [...document.querySelectorAll(".folds td")].filter((cell) => cell.offsetParent && !hasRoom(cell)).map((cell) => cell.dataset.head);
"""  # noqa: E501
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


def _resize(browser: webdriver.Chrome, width: int, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _set_theme(browser: webdriver.Chrome, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _load(browser: webdriver.Chrome, address: str) -> None:
    browser.get("about:blank")
    browser.get(address)


@contextmanager
def _unanswered(browser: webdriver.Chrome, route: str) -> Iterator[None]:
    """Requests to a route wait meanwhile."""
    browser.execute_cdp_cmd("Fetch.enable", {"patterns": [{"urlPattern": f"*/tiering/page/{route}*"}]})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Fetch.disable", {})


@contextmanager
def _refused(browser: webdriver.Chrome, route: str) -> Iterator[None]:
    """Requests to a route fail meanwhile, as if Airflow were away."""
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": [f"*/tiering/page/{route}*"]})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})


def _views(browser: webdriver.Chrome, page: str) -> Iterator[tuple[str, str]]:
    """Show every view in both themes, and wait until it has read what it shows."""
    for theme in THEMES:
        _set_theme(browser, theme)
        for view in VIEWS:
            _load(browser, f"{page}#{view}")
            steps.wait(browser, lambda shown: "topic" in shown.find_element(By.ID, "facts").text, "first line")
            steps.wait(browser, lambda shown: "Loading" not in shown.find_element(By.TAG_NAME, "main").text, view)
            assert browser.execute_script("return document.documentElement.dataset.theme") == theme
            yield theme, view


def _serious(browser: webdriver.Chrome) -> list[Any]:
    browser.execute_script(AXE.read_text())
    return [found for found in browser.execute_async_script(RUN) if found[1] in ("serious", "critical")]


def _errors(browser: webdriver.Chrome) -> list[str]:
    unseen = ("/nothing", "favicon", "topic?name=orders", "retention?topic=orders")
    return [
        line["message"] for line in browser.get_log("browser") if not any(each in line["message"] for each in unseen)
    ]


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: make .cache/axe/axe.min.js fetches it by npm")
@pytest.mark.parametrize("role", ["viewer", "op"])
def test_axe_finds_nothing_serious_in_a_full_platform(
    full: Deployment, serve: Serve, browser: webdriver.Chrome, role: str
) -> None:
    page = _opened(browser, serve("tiering_page", role))
    for width in WIDTHS:
        _resize(browser, width)
        for theme, view in _views(browser, page):
            for details in browser.find_elements(By.CSS_SELECTOR, "main details"):
                browser.execute_script("arguments[0].open = true", details)
            assert _serious(browser) == [], (theme, view, width)
            if width == WIDTHS[1]:
                _picture(browser, theme, view, role)
    assert _errors(browser) == []


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: make .cache/axe/axe.min.js fetches it by npm")
def test_axe_finds_nothing_serious_in_an_empty_platform(
    empty: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    for width in WIDTHS:
        _resize(browser, width)
        for theme, view in _views(browser, page):
            assert _serious(browser) == [], (theme, view, width)
            if (width, theme, view) == (WIDTHS[1], "light", "now"):
                _save(browser, "empty")
    assert _errors(browser) == []


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: make .cache/axe/axe.min.js fetches it by npm")
def test_states_of_the_page_say_what_they_are(full: Deployment, serve: Serve, browser: webdriver.Chrome) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    for width, theme in itertools.product(WIDTHS[:2], THEMES):
        _resize(browser, width)
        _set_theme(browser, theme)

        def accepted(state: str, *texts: str, width: int = width, theme: str = theme) -> None:
            _shows(browser, *texts)
            assert _serious(browser) == [], (state, width, theme)
            if (width, theme) == (WIDTHS[1], "light"):
                _save(browser, state)

        with _unanswered(browser, "now"):
            _load(browser, page)
            accepted("loading", "Loading…")
        steps.wait(browser, lambda shown: "topic" in shown.find_element(By.ID, "facts").text, "first line")
        accepted("idle", "Nothing is running.", "Quotas in force")

        with _refused(browser, "now"):
            steps.wait(browser, lambda shown: "old" in shown.find_element(By.ID, "state").text, "age of the numbers")
            assert "Airflow does not answer." in browser.find_element(By.ID, "state").text
            accepted("stale", "Nothing is running.", "Quotas in force")
            _load(browser, page)
            accepted("failed", "The present state cannot be read: Airflow does not answer.")
            assert browser.find_element(By.ID, "facts").text == "No number is known."
        steps.wait(browser, lambda shown: not shown.find_element(By.ID, "state").is_displayed(), "fresh numbers")

        with _refused(browser, "throughput"):
            _load(browser, page)
            accepted("failed-part", "This part cannot be read: Airflow does not answer.", "Quotas in force", "Pools")


def test_late_answers_and_odd_addresses_break_nothing(
    full: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    with _unanswered(browser, "topic?name"):
        _load(browser, f"{page}#topic/orders")
        _shows(browser, "Loading…")
        browser.execute_script("location.hash = '#limits'")
        _shows(browser, "Change a limit")
    steps.wait(browser, lambda shown: shown.find_elements(By.CSS_SELECTOR, "main table"), "limits")
    time.sleep(1)  # The answer about the topic comes now.
    assert "Stored bytes" not in browser.find_element(By.TAG_NAME, "main").text
    _shows(browser, "Change a limit")
    for odd in ("%", "%E0%A4%A", MARKUP):
        _load(browser, f"{page}#topic/{odd}")
        _shows(browser, "is no topic")
        steps.wait(browser, lambda shown: "topic" in shown.find_element(By.ID, "facts").text, "first line")
        assert browser.find_elements(By.TAG_NAME, "img") == []


def test_reasons_lead_to_the_topic_and_to_the_runbook_and_only_commands_are_code(
    empty: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    empty.copied("orders")
    with empty.open() as app:
        app.adapters.recorder.set(HELD_BACK, 1, "payments", "above-last-stable-offset")
        app.adapters.stores.pool_mirror.record(COPIER_POOL, 0, seen=None, author="test")
    page = _opened(browser, serve("tiering_page", "op"))
    _load(browser, f"{page}#now")
    _shows(browser, f"The pool {COPIER_POOL} has 0 slots, so nothing of it begins.", "it names the producer")
    commands = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "main code")]
    assert "./tiering doctor payments" in commands
    assert not [text for text in commands if "producer" in text]
    browser.find_element(By.LINK_TEXT, "payments").click()
    _shows(browser, "nothing was copied yet", "above the last stable offset", "1 partition, as of the last plan")
    assert browser.find_elements(By.CSS_SELECTOR, "main .bad") == []
    _load(browser, f"{page}#needs")
    _shows(browser, "Nothing begins", "above the last stable offset")
    browser.find_element(By.PARTIAL_LINK_TEXT, "#a-pool-has-another-size-than-expected").click()
    _shows(browser, "A pool has another size than expected", "It is over when")
    _load(browser, f"{page}#limits/topics/orders/retention.ms")
    steps.wait(browser, lambda shown: shown.find_elements(By.ID, "config"), "form")
    fields = [browser.find_element(By.ID, name).get_property("value") for name in ("type", "entity", "config")]
    assert fields == ["topics", "orders", "retention.ms"]


def test_no_view_is_wider_than_the_window_and_tables_fold(
    full: Deployment, serve: Serve, browser: webdriver.Chrome
) -> None:
    page = _opened(browser, serve("tiering_page", "op"))
    for width in WIDTHS:
        _resize(browser, width)
        for theme, view in _views(browser, page):
            shown = browser.execute_script("return document.documentElement.scrollWidth")
            assert shown <= width, (theme, view, width)
            hiding = browser.execute_script(HIDING)
            assert {label for label, _ in hiding} <= MAY_SCROLL, (theme, view, width)
            assert {tab_index for _, tab_index in hiding} <= {0}
            if width == WIDTHS[0]:
                assert browser.execute_script(HEADLESS) == [], (theme, view)
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
    with empty.open() as app:
        (skipped,) = [event for event in app.adapters.stores.events.newest(9) if "OPS-12" in event.detail]
    for zone in ("Pacific/Auckland", "America/St_Johns"):
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
        _load(browser, f"{page}#limits")
        at = format_utc(skipped.occurred_at_ms)
        _shows(browser, "agreed in OPS-12", "olga (page Tiering)", f"{at[:16]} UTC")


def _shows(browser: webdriver.Chrome, *texts: str) -> None:
    def shown(page: webdriver.Chrome) -> bool:
        return all(text in page.find_element(By.TAG_NAME, "main").text for text in texts)

    steps.wait(browser, shown, str(texts))


def _picture(browser: webdriver.Chrome, kind: str, view: str, role: str) -> None:
    """Save the whole view below the directory that PAGE_PICTURES names, and some of them for the documentation."""
    directory, wanted = os.environ.get("PAGE_PICTURES"), DOCUMENTED.get((kind, view))
    if role != "op" or (directory is None and (wanted is None or not UPDATES)):
        return
    height = browser.execute_script("return document.documentElement.scrollHeight")
    width = browser.execute_script("return document.documentElement.clientWidth")
    _resize(browser, width, min(height, 3_000))
    if directory is not None:
        time.sleep(0.3)
        browser.save_screenshot(str(Path(directory) / f"{view.replace('/', '-')}-{kind}.png"))
    if wanted is not None:
        _save(browser, wanted)
    _resize(browser, width)


def _save(browser: webdriver.Chrome, name: str) -> None:
    if UPDATES:
        time.sleep(0.3)
        browser.save_screenshot(str(PICTURES / f"tiering-page-{name}.png"))
