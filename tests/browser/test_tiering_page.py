"""The page *Tiering* inside of Airflow: a copy is watched, topics are looked up, limits are changed, all is paused.

Pictures in the documentation are taken on the way when UPDATE_PICTURES=1 asks for them.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from local.secrets_store import READER
from tests.browser import steps
from tests.browser.conftest import OpenBrowser
from tests.doubles.orphans import plant_orphan
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT

PICTURES: Final = ROOT / "docs" / "images"
POOL: Final = "remote_log_copier"
POOL_SIZE: Final = "remote.log.manager.copier.thread.pool.size"
QUOTA: Final = "tiering.copy.total.max.bytes.per.second"
MARKUP: Final = "<img src=x onerror=document.title=1>"
_TRACE_SECONDS: Final = 240
"""A minute begins within 60 seconds, ends 60 seconds later, and is shown at most 105 seconds after that."""
TRACE: Final = """
  // By part of the line of the quota: which share of it each minute has that lies below this part.
  const chart = document.querySelector("svg.chart");
  if (!chart) return [];
  const numbers = (path) => path.getAttribute("d").match(/[0-9.]+/g).map(Number);
  const [, floor] = numbers(chart.querySelector("path.axis"));
  const bars = [...chart.querySelectorAll("rect.copied")].map((bar) => ["x", "y", "width"].map((name) => Number(bar.getAttribute(name))));
  return [...chart.querySelectorAll("path.quota")].map(numbers).map(([from, height, to]) =>
    bars.filter(([x, , width]) => x >= from && x + width <= to).map(([, y]) => (floor - y) / (floor - height)));
"""  # noqa: E501
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


def _slots(browser: webdriver.Chrome) -> int:
    """The size of the pool of copies in Airflow."""
    slots: int = steps.ask(browser, f"/pools/{POOL}")["slots"]
    return slots


def _has_slots(browser: webdriver.Chrome, slots: int) -> bool:
    return _slots(browser) == slots


def _rate(browser: webdriver.Chrome) -> float:
    """The rate of the run that is shown, in KiB a second."""
    found = re.search(r"of their plans done, ([0-9.]+) KiB/s", browser.find_element(By.TAG_NAME, "main").text)
    return float(found[1]) if found else 0.0


def _wait_for_a_minute_of_the_quota(browser: webdriver.Chrome, *, parts: int) -> None:
    """Wait until the line of the quota has so many parts, and a bar below the last one reaches it."""

    def reaches(page: webdriver.Chrome) -> bool:
        found = page.execute_script(TRACE)
        return len(found) == parts and any(0.9 < share < 1.06 for share in found[-1])

    WebDriverWait(browser, _TRACE_SECONDS, poll_frequency=2).until(reaches, "no minute reached the line of the quota")


def _post(browser: webdriver.Chrome, path: str, body: Any) -> Any:
    return browser.execute_async_script(POST, path, body)


def _picture(browser: webdriver.Chrome, name: str) -> None:
    if os.environ.get("UPDATE_PICTURES") == "1":
        time.sleep(2.5)  # The page reads every two seconds.
        browser.save_screenshot(str(PICTURES / f"tiering-page-{name}.png"))


def test_a_backfill_is_planned_started_and_watched(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _quota(said, "4KiB")
    _open(browser, said)
    _sees(browser, "Nothing is tiered yet", "Nothing is paused")
    _sees(browser, "0 topics", "nothing verified yet", "unknown how much waits", css="#facts")

    steps.app(said, "sizes")
    _view(browser, "backfill")
    _sees(browser, "Choose topics", "At the present quotas", "Total quota: 4.0 KiB/s")
    steps.element(browser, "#other-quota").send_keys("2KiB")
    _sees(browser, "At a total quota of 2.0 KiB/s")
    plan = json.loads(steps.app(said, "backfill", "--quota", "2KiB", "--json"))
    assert plan["asked_seconds"] == pytest.approx(2 * plan["seconds"])
    _sees(browser, f"{plan['bytes'] / 2**20:.1f} MiB in {plan['segments']} segments of {len(plan['topics'])} topics")
    steps.button(browser, "main", "Copy all configured topics now…").click()
    steps.button(browser, "main", "Copy all configured topics now").click()
    _sees(browser, "Started: tiering_copy")

    _view(browser, "now")
    steps.element(browser, "progress")
    _sees(browser, "running batch", "4.0 KiB/s", "remote_log_copier", "left at this rate")
    steps.wait(browser, lambda page: 2.8 < _rate(page) < 4.8, "rate of the quota")


def test_the_throughput_of_the_backfill_is_its_quota(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _open(browser, said)
    _wait_for_a_minute_of_the_quota(browser, parts=1)
    _picture(browser, "now")
    if os.environ.get("UPDATE_PICTURES") == "1":
        dark = "window.parent.document.documentElement.className = arguments[0] ? 'dark' : 'light'"
        browser.execute_script(dark, True)
        _picture(browser, "dark")
        browser.execute_script(dark, False)


def test_the_quota_is_halved_and_the_chart_follows(browser: webdriver.Chrome, said: dict[str, str]) -> None:
    _open(browser, said)
    _view(browser, "limits")
    _set(browser, "brokers", "", QUOTA, "2KiB")
    _sees(browser, "1 config changed")
    _view(browser, "now")
    steps.wait(browser, lambda page: 1.4 < _rate(page) < 2.5, "half of the rate")
    _wait_for_a_minute_of_the_quota(browser, parts=2)
    _sees(browser, "total copy quota now: 2.0 KiB/s", "changes of limits, the newest first")
    halved = "4.0 KiB/s (4096 bytes a second) → 2.0 KiB/s (2048 bytes a second)"
    _sees(browser, f"admin (page Tiering): brokers default, {QUOTA}: {halved}")

    _quota(said, "20MiB")
    _sees(browser, "Nothing is running")
    totals = json.loads(steps.app(said, "status", "--json"))["totals"]
    assert totals["topics"] > 5
    shown = f"{totals['finished_bytes'] / 2**20:.1f} MiB remote"
    safe = "100 % of the remote bytes are safe"
    _sees(browser, f"{totals['topics']} topics", shown, safe, "nothing paused", css="#facts")

    _view(browser, "topics")
    steps.element(browser, "#search").send_keys("ORD")
    _sees(browser, "Topics 1 to 1 of 1.", "orders")
    steps.element(browser, "main td a").click()
    _sees(browser, "Topic id", "By leader epoch", "retention.ms", "./tiering doctor orders")
    browser.execute_script("history.back()")
    _sees(browser, "Topics 1 to 1 of 1.", "Only those with “ORD” in their name.", "Show all topics")
    _view(browser, "now")
    _view(browser, "topics")
    assert steps.element(browser, "#search").get_property("value") == ""
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
    _set(browser, "brokers", "", QUOTA, MARKUP)
    _sees(browser, "Nothing was changed as far as is known", MARKUP)
    _set(browser, "clients", MARKUP, "tiering.fetch.max.bytes.per.second", "1MiB")
    _sees(browser, f"client {MARKUP}", "1.0 MiB/s (1048576 bytes a second)")
    assert browser.find_elements(By.TAG_NAME, "img") == []

    before = _slots(browser)
    for slots in (before + 1, before):
        _set(browser, "brokers", "", POOL_SIZE, str(slots))
        eventually(partial(_has_slots, browser, slots), "the pool has this size")
        pools = json.loads(steps.app(said, "pools", "--json"))["pools"]
        assert [pool["slots"] for pool in pools if pool["name"] == POOL] == [slots]
    _sees(browser, "pool size", POOL, f"{before + 1} -> {before}")

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


def test_a_backfill_is_started_a_retention_previewed_and_set_and_an_approval_answered(
    browser: webdriver.Chrome, said: dict[str, str]
) -> None:
    _quota(said, "20MiB")
    steps.app(said, "sizes")
    _open(browser, said)
    _view(browser, "backfill")
    _sees(browser, "Plan a backfill", "Choose topics")
    steps.button(browser, "main", "Copy all configured topics now…").click()
    steps.button(browser, "main", "Copy all configured topics now").click()
    _sees(browser, "Started: tiering_copy")

    def is_copied(page: webdriver.Chrome) -> bool:
        runs = steps.ask(page, "/dags/tiering_copy/dagRuns?order_by=-run_after&limit=1")["dag_runs"]
        return bool(runs[0]["state"] == "success")

    steps.wait(browser, is_copied, "run of the copy that ended")

    _view(browser, "topics")
    steps.element(browser, "#search").clear()
    steps.element(browser, "#search").send_keys("orders")
    _sees(browser, "Topics 1 to 1 of 1.", "orders")
    steps.element(browser, "main td a").click()
    steps.element(browser, "main a[href^='#retention/']").click()
    _sees(browser, "Another retention of orders", "These are the present values.")
    steps.element(browser, "#retention_bytes").send_keys("4KiB")
    _sees(browser, "at present of any size", "4.0 KiB of each partition", "Log start offset", "Saved a month")
    assert json.loads(steps.app(said, "retention", "orders", "--json"))["present"]["retention_bytes"] is None
    shown = json.loads(steps.app(said, "retention", "orders", "--retention-bytes", "4KiB", "--json"))
    _sees(browser, f"{shown['horizons'][0]['bytes'] / 1024:.1f} KiB")
    _picture(browser, "retention")
    words = "Set retention.bytes of orders to 4.0 KiB of each partition"
    steps.button(browser, "main", f"{words}…").click()
    _sees(browser, "what is deleted cannot be brought back", shown["approval"])
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.switch_to.active_element.text == f"{words}…"
    steps.button(browser, "main", f"{words}…").click()
    steps.button(browser, "main", words).click()
    _sees(browser, "1 config changed", "These are the present values.")

    # A plan that takes more of a topic than the limit allows waits for an answer.
    brokers = ("--entity-type", "brokers", "--entity-default")
    steps.app(said, "configs", "--alter", *brokers, "--add-config", "tiering.expiration.min.bytes=0")
    assert _patch(browser, "/api/v2/dags/tiering_expiration", {"is_paused": False}) == 200
    assert _post(browser, "/api/v2/dags/tiering_expiration/dagRuns", {"logical_date": None}) == 200

    def waits(_page: webdriver.Chrome) -> bool:
        return bool(json.loads(_attention(said))["approvals"])

    steps.wait(browser, waits, "approval")
    _view(browser, "needs")
    _sees(browser, "Delete ", "orders", "retention.bytes of any size → 4.0 KiB of each partition", "admin")
    _picture(browser, "needs")
    steps.button(browser, "main", "Approve…").click()
    headline = json.loads(_attention(said))["approvals"][0]["headline"]
    time.sleep(5)  # An answer that comes before the scheduler has seen the question fails the process that asked.
    steps.button(browser, "main", f"Approve: {headline}").click()
    _sees(browser, "as Airflow recorded it")

    def is_answered(_page: webdriver.Chrome) -> bool:
        events = json.loads(steps.app(said, "events", "--json"))["events"]
        return any(event["kind"] == "answer" and event["author"] == "admin" for event in events)

    steps.wait(browser, is_answered, "event of the answer")
    _view(browser, "limits")
    _sees(browser, "answer", "admin", "retention.bytes", "admin (page Tiering)")


def test_a_finding_with_markup_is_inert_and_is_accepted(
    browser: webdriver.Chrome, said: dict[str, str], home: Path
) -> None:
    stray = next((home / "state").rglob("_tiering-store.json")).parent / f"{MARKUP.replace('/', '')}.log"
    stray.write_bytes(b"by hand")
    _audit(said)
    _open(browser, said)
    _view(browser, "needs")
    _sees(browser, "foreign-object", "<img src=x onerror=document.title=1>.log")
    assert browser.find_elements(By.TAG_NAME, "img") == []
    steps.button(browser, "main", "Accept…").click()
    finding = json.loads(_attention(said))["findings"][0]["finding_id"]
    steps.button(browser, "main", f"Leave finding {finding} as it is").click()
    _sees(browser, "1 finding accepted", "No finding of an audit is open.")
    events = json.loads(steps.app(said, "events", "--json"))["events"]
    assert [event["author"] for event in events if event["kind"] == "audit finding accepted"] == [
        "admin (page Tiering)"
    ]


def test_a_damaged_segment_is_verified_again_and_copied_again(
    browser: webdriver.Chrome, said: dict[str, str], home: Path
) -> None:
    store = next((home / "state").rglob("_tiering-store.json")).parent
    damaged = next(path for path in sorted(store.rglob("*.log")) if "audit_log" in str(path.parent))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    _findings_of(said, "verify", "--all", "--topic", "audit_log", "--depth", "deep")
    _open(browser, said)
    _view(browser, "quality")
    _sees(browser, "Passed, every byte was read", "audit_log", "Q102", "stored_log_crc32c", "Expected")
    steps.button(browser, "main", "Verify again").click()
    _sees(browser, "Verify the failed segments of audit_log again: tiering_quality")
    steps.wait(browser, lambda page: _ended(page, "tiering_quality"), "end of the verification")
    confs = [run["conf"] for run in steps.ask(browser, "/dags/tiering_quality/dagRuns")["dag_runs"]]
    assert [conf["topics"] for conf in confs if conf.get("which") == "failed"] == [["audit_log"]]
    steps.button(browser, "main", "Copy again").click()
    _sees(browser, "Copy audit_log again: tiering_copy")
    steps.wait(browser, lambda page: _ended(page, "tiering_copy"), "end of the copy")
    steps.button(browser, "main", "Read again").click()
    _sees(browser, "No segment failed its verification.")


def _ended(browser: webdriver.Chrome, dag_id: str) -> bool:
    (run,) = steps.ask(browser, f"/dags/{dag_id}/dagRuns?order_by=-run_after&limit=1")["dag_runs"]
    return run["state"] in ("success", "failed")


def test_an_orphan_is_found_and_its_removal_is_planned(
    browser: webdriver.Chrome, said: dict[str, str], home: Path
) -> None:
    store = next((home / "state").rglob("_tiering-store.json")).parent
    for by_hand in store.glob("*.log"):
        by_hand.unlink()
    plant_orphan(store)
    _audit(said)
    _open(browser, said)
    _view(browser, "quality")
    _sees(browser, "orphan", "./tiering audit --delete-orphans")
    steps.button(browser, "main", "Remove…").click()
    steps.button(browser, "main", "Plan to remove all orphans, and ask for an approval").click()
    _sees(browser, "Plan the removal of orphans: tiering_audit")
    steps.wait(browser, lambda _page: bool(json.loads(_attention(said))["approvals"]), "approval of the removal")


def _attention(said: dict[str, str]) -> str:
    return _findings_of(said, "attention", "--json")


def _audit(said: dict[str, str]) -> None:
    _findings_of(said, "audit")


def _findings_of(said: dict[str, str], *arguments: str) -> str:
    """Return what a command prints that ends with 1 if it has findings."""
    config = said["settings"].split()[1].removeprefix("TIERING_CONFIG=")
    command = [str(ROOT / "tiering"), "--config", config, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def _patch(browser: webdriver.Chrome, path: str, body: Any) -> Any:
    return browser.execute_async_script(POST.replace('"POST"', '"PATCH"'), path, body)
