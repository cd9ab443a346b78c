"""The report of a run in a browser whose network is cut: readable, linkable, and asking nobody for anything.

The picture in the documentation is taken on the way when UPDATE_PICTURES=1 asks for it.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from include.tiering.copying.run_scope import RunScope
from include.tiering.model.segments import Depth
from include.tiering.verification.data_docs import DataDocs
from include.tiering.verification.quality_run import QualityRun, anchor_of
from tests.browser.conftest import OpenBrowser
from tests.doubles.airflow_home import deployment
from tests.doubles.source_tree import ROOT

RUN_ID = "scheduled__2026-11-21T03:00:00+00:00"
PICTURE = ROOT / "docs" / "images" / "quality-report.png"

pytestmark = [
    pytest.mark.integration,
]


@pytest.fixture(scope="module")
def run_and_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[QualityRun, Path]:
    """Segments of a real broker, copied, damaged in three ways, verified."""
    directory = tmp_path_factory.mktemp("deployment")
    deployed = deployment(directory)
    docs = DataDocs(directory / "docs")
    with deployed.open() as app:
        app.copying.plan("copy", scope=RunScope(("orders", "audit_log")))
        app.copying.run_batch("copy", "copy/0")
        *_, second, largest = sorted(deployed.remote.rglob("*.log"), key=lambda log: (log.stat().st_size, log.name))
        _damage(largest, lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:])
        _damage(second, lambda content: content[:-100])
        _damage(min(deployed.remote.rglob("*.indexes")), lambda content: content[:8] + bytes(8) + content[16:])
        began_at_ms = app.adapters.clock.now_ms()
        results = docs.begin("tiering_quality", RUN_ID)
        verified = app.verification.verify_run("copy", depth=Depth.DEEP, results_dir=results)
        partitions = app.verification.verify_partitions(results_dir=results)
        run = QualityRun(
            origin="tiering_quality",
            run_id=RUN_ID,
            depth=Depth.DEEP,
            began_at_ms=began_at_ms,
            ended_at_ms=app.adapters.clock.now_ms(),
            segments=verified.segments,
            bytes_read=verified.bytes_read,
            failed=(*verified.failed, *partitions.failed),
            warnings=(*verified.warnings, *partitions.warnings),
            partitions=partitions.partitions,
        )
    return run, docs.publish(run)


def _damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    """It finds no host but this one."""
    nowhere = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    return open_browser("--hide-scrollbars", "--window-size=1280,1250", nowhere, logs=("browser", "performance"))


def _requested(browser: webdriver.Chrome) -> set[str]:
    """Addresses that our pages asked for, whether they got them or not."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {one["request"]["url"] for one in requests if one["documentURL"].startswith("file:")}


def test_a_report_is_whole_without_a_network(browser: webdriver.Chrome, run_and_page: tuple[QualityRun, Path]) -> None:
    run, page = run_and_page
    failed = list(dict.fromkeys(finding.segment_id for finding in run.failed))
    assert len(failed) == 3
    browser.get(page.as_uri())
    verdict = browser.find_element(By.CLASS_NAME, "verdict")
    assert verdict.text == f"3 of {run.segments} segments failed"
    assert verdict.value_of_css_property("border-radius") == "6px"
    assert [row.get_attribute("id") for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr[id]")] == [
        anchor_of(segment_id) for segment_id in failed
    ]
    if os.environ.get("UPDATE_PICTURES") == "1":
        browser.save_screenshot(str(PICTURE))

    row = browser.find_element(By.ID, anchor_of(failed[1]))
    assert row.value_of_css_property("outline-style") == "none"
    row.find_element(By.TAG_NAME, "a").click()
    assert browser.current_url == f"{page.as_uri()}#{anchor_of(failed[1])}"
    assert row.value_of_css_property("outline-style") == "solid"

    browser.find_element(By.CSS_SELECTOR, "nav a").click()
    browser.find_element(By.LINK_TEXT, RUN_ID).click()
    assert browser.current_url == page.as_uri()
    assert _requested(browser) == {page.as_uri(), (page.parents[1] / "index.html").as_uri()}
    assert browser.get_log("browser") == []
