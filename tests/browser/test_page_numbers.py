"""Every number that a view of the page *Tiering* shows is one of the document of its command, of the same snapshot.

The snapshot is a copy of the database, taken while a copy runs under a quota; the page and the commands read the same
one. The texts of numbers are those of the page's own functions, applied to the documents of the commands.
"""

import json
import os
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.model.segments import Depth
from tests.browser import steps
from tests.browser.conftest import OpenBrowser, Serve
from tests.doubles.airflow_home import Deployment, deployed_for, deployment
from tests.doubles.orphans import plant_orphan
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT

COMMANDS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "now": (("status",), ("throughput", "--hours", "6")),
    "quality": (("quality",),),
    "needs": (("attention",),),
    "backfill": (("backfill",),),
    "topics": (("sizes", "--by", "topic", "--no-log-dirs"), ("backfill",), ("retention", "orders")),
}
"""Commands whose documents have the numbers of a view; the first line of the page is that of `status`."""
OF_THE_PAGE: Final = {"now": {"6"}, "needs": set(), "quality": set(), "backfill": {"0"}, "topics": set()}
"""Numbers in the page's own words, such as `Throughput of the last 6 hours`."""
NUMBER: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|\d\d:\d\d UTC|-?\d+ d \d+ h|-?\d+ h \d+ min"
    r"|-?\d+(?:,\d{3})*(?:\.\d+)?(?: (?:[KMGTP]iB|B)(?:/s)?| (?:s|min|h|d)\b| %)?"
)
LEAST_MEMBERS: Final = 8
"""How many members of the answers of each view are shown as numbers, at least."""
OF_TIME: Final = re.compile(r"\d+ (?:s|min)|\d\d:\d\d UTC")
"""Numbers that change with the time between two looks at a view."""
AGES: Final = 30
"""An age grows by so many seconds at most between a command and the page."""
RENDERED: Final = """
  const [documents, ages, done] = arguments;
  import(location.origin + location.pathname + "assets/parts.js").then((parts) => {
    const found = new Set();
    const add = (number, now) => {
      for (const text of [parts.bytes(number), parts.perSecond(number), parts.whole(number), parts.duration(number),
        String(number), number.toFixed(1), number.toFixed(2)]) found.add(text);
      if (number < 1e12 || number > 8e15) return;
      found.add(parts.moment(number)).add(parts.clock(number));
      for (let later = -ages; later <= ages; later += 1) found.add(parts.duration((now - number) / 1000 + later));
    };
    const walk = (value, now) => {
      if (typeof value === "number") add(value, now);
      else if (typeof value === "string") { found.add(value).add(parts.spoken(value)); if (value.trim() && !Number.isNaN(Number(value))) add(Number(value), now); }
      else if (Array.isArray(value)) { add(value.length, now); value.forEach((each) => walk(each, now)); }
      else if (value && typeof value === "object") { for (const [key, each] of Object.entries(value)) { found.add(key); walk(each, now); } }
    };
    for (const each of documents) walk(each, each.as_of_ms ?? each.until_ms ?? Date.now());
    done([...found]);
  }).catch((error) => done([`error ${error}`]));
"""  # noqa: E501
WRONG: Final = """
  // The member that the name of the window says is wrong in each answer that has it.
  window.numbersOfAnswers = new Set();
  const wrong = (value, member) => {
    if (Array.isArray(value)) return value.map((each) => (typeof each === "object" ? wrong(each, member) : each));
    if (!value || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => {
      if (typeof each !== "number") return [name, wrong(each, member)];
      if (name !== "as_of_ms" && name !== "until_ms" && name !== "since_ms") window.numbersOfAnswers.add(name);
      return [name, name !== member ? each : each > 1e12 ? each - 9876543210 : 3 * each + 7654321.5];
    }));
  };
  const ask = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await ask(...asked);
    if (!answer.ok) return answer;
    return new Response(JSON.stringify(wrong(await answer.json(), window.name)), { status: answer.status });
  };
"""
SHOWN: Final = """
  const shown = document.body.cloneNode(true);
  for (const each of shown.querySelectorAll("svg, nav, noscript, script")) each.remove();
  const texts = [];
  const walker = document.createTreeWalker(shown, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) texts.push(walker.currentNode.textContent);
  return texts;
"""

pytestmark = [
    pytest.mark.integration,
    # Airflow's web application imports a test client.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    """Some topics are copied, one segment is damaged, an orphan is found; the rest waits."""
    made = deployed_for(monkeypatch, deployment(tmp_path))
    made.copied("orders", "trimmed", run_id="first")
    with made.open() as app:
        app.verification.verify_run("first")
        damaged = next(path for path in sorted(made.remote.rglob("*.log")) if "trimmed" in str(path))
        content = damaged.read_bytes()
        damaged.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        for partition in [one for one in app.adapters.stores.metadata.partitions() if one.topic == "trimmed"]:
            own = app.adapters.stores.metadata.list_segments(partition)
            ids = frozenset(row.metadata.remote_log_segment_id for row in own)
            app.verification.verify_segments({partition: ids}, Depth.DEEP)
        plant_orphan(made.remote)
        app.audit.run("audit")
        app.sizes.report()
        app.configs.alter(ALL_BROKERS, {"tiering.copy.total.max.bytes.per.second": "60KiB"}, author="otto")
    return made


@contextmanager
def copying(deployed: Deployment) -> Iterator[None]:
    """A copy of all that waits, which has sent something."""
    command = [str(ROOT / "tiering"), "--config", str(deployed.config), "copy", "--topic", "bigrecs"]
    copy = subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def has_sent() -> bool:
            with deployed.open() as app:
                return any(batch.done_bytes for batch in app.adapters.stores.work.running_batches())

        eventually(has_sent, "a batch that has sent something")
        yield
    finally:
        copy.terminate()
        copy.wait()


@contextmanager
def running_still(snapshot: Path) -> Iterator[None]:
    """The batches of the snapshot count as running: their last reports are never older than a second."""
    closing_, statement = threading.Event(), "UPDATE batches SET updated_at_ms = ? WHERE finished = 0"

    def renew() -> None:
        with closing(sqlite3.connect(snapshot, timeout=30)) as connection:
            while not closing_.wait(0.5):
                connection.execute(statement, (round(time.time() * 1000),))
                connection.commit()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing_.set()
        thread.join()


def numbers_of(texts: list[str]) -> set[str]:
    return {found for text in texts for found in NUMBER.findall(text)}


def derived(documents: list[Any]) -> list[str]:
    """Sums and shares that the page makes of numbers of a document."""
    found: list[float] = []
    texts: list[str] = []
    for document in documents:
        if "totals" in document:
            totals = document["totals"]
            counted = max(totals["judged_bytes"]["value"], totals["finished_bytes"])
            texts.append(f"{int(1000 * (totals['safe_bytes']['value'] or 0) / counted) / 10:g} %")
            found.append((totals["findings"]["value"] or 0) + (totals["failed_segments"]["value"] or 0))
            for run in {batch["run_id"] for batch in document["batches"]}:
                own = [batch for batch in document["batches"] if batch["run_id"] == run]
                found += [
                    sum(batch[name] for batch in own) for name in ("done_bytes", "planned_bytes", "bytes_per_second")
                ]
                found.append(len(own))
                if rate := sum(batch["bytes_per_second"] for batch in own):
                    left = sum(batch["planned_bytes"] - batch["done_bytes"] for batch in own)
                    found.append(left / rate)
        if "minutes" in document:
            found.append(sum(minute["copied_bytes"] for minute in document["minutes"]))
            found.append(max((minute["copied_bytes"] / 60 for minute in document["minutes"]), default=0))
            found.append(round(sum(minute["copy_throttled_seconds"] for minute in document["minutes"])))
        if "verdicts" in document and "counted_at_ms" in document:
            found.append(sum(cell["segments"] for cell in document["verdicts"]))
    return [*texts, json.dumps(found)]


@pytest.fixture
def browser(open_browser: OpenBrowser) -> webdriver.Chrome:
    return open_browser("--window-size=1280,1000")


@pytest.fixture
def page(
    deployed: Deployment, serve: Serve, browser: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator["SnapshotPage"]:
    """The page and the commands over one snapshot of a platform that copies."""
    with deployed.open() as app:
        database = Path(str(app.adapters.engine.url.database))
    snapshot = tmp_path / "snapshot.sqlite"
    monkeypatch.setenv("TIERING_METADATA__URL", f"sqlite:///{snapshot}")
    address, session = serve("tiering_page", "viewer")
    browser.get(f"{address}/nothing")
    browser.add_cookie({"name": "_token", "value": session})
    monkeypatch.delenv("TIERING_METADATA__URL")
    with copying(deployed), closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(snapshot)) as copy:
        source.backup(copy)
    with running_still(snapshot):
        yield SnapshotPage(
            browser,
            f"{address}/tiering/page/",
            {**deployed.environment, "TIERING_METADATA__URL": f"sqlite:///{snapshot}"},
        )


class SnapshotPage:
    """Shows views, and compares their numbers with the documents of their commands."""

    def __init__(self, browser: webdriver.Chrome, address: str, environment: dict[str, str]) -> None:
        self.browser = browser
        self._address = address
        self._environment = environment

    def texts(self, view: str) -> list[str]:
        """Show a view, and return its texts."""
        self.browser.get("about:blank")
        self.browser.get(f"{self._address}#{view}")
        steps.wait(self.browser, lambda shown: "topic" in shown.find_element(By.ID, "facts").text, "first line")
        steps.wait(self.browser, lambda shown: "Loading" not in shown.find_element(By.TAG_NAME, "main").text, view)
        texts: list[str] = self.browser.execute_script(SHOWN)
        return texts

    def documents(self, view: str) -> list[Any]:
        return [_document(self._environment, command) for command in (("status",), *COMMANDS[view])]

    def known(self, view: str, documents: list[Any]) -> set[str]:
        """Return the numbers that the documents allow on a view, which must be shown."""
        rendered = self.browser.execute_async_script(RENDERED, [*documents, json.loads(derived(documents)[-1])], AGES)
        assert not rendered[0].startswith("error"), rendered
        return numbers_of([*rendered, *derived(documents)]) | OF_THE_PAGE[view]


def test_every_number_of_a_view_is_in_the_document_of_its_command(page: SnapshotPage) -> None:
    counted = 0
    for view in COMMANDS:
        # A minute may end meanwhile, with which the last hours begin a minute later.
        before = page.documents(view)
        texts, documents = page.texts(view), page.documents(view)
        known, shown = page.known(view, [*before, *documents]), numbers_of(texts)
        counted += len(shown)
        assert shown - known == set(), (view, [text for text in texts if numbers_of([text]) - known])
        if view == "now":
            (batch,) = documents[0]["batches"]
            assert 0 < batch["done_bytes"] < batch["planned_bytes"]
    assert counted > 100


def test_a_wrong_number_of_any_member_is_noticed(page: SnapshotPage) -> None:
    """Each member of an answer is made wrong in turn: if the view then shows other numbers, one must be unknown."""
    noticed: dict[str, set[str]] = {}
    unnoticed = []
    script = page.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WRONG})
    for view in COMMANDS:
        page.browser.execute_script("window.name = ''")
        right, known = numbers_of(page.texts(view)), page.known(view, page.documents(view))
        for member in sorted(page.browser.execute_script("return [...window.numbersOfAnswers]")):
            page.browser.execute_script("window.name = arguments[0]", member)
            wrong = numbers_of(page.texts(view))
            if wrong - known:
                noticed.setdefault(view, set()).add(member)
            elif other := {number for number in wrong - right if not OF_TIME.fullmatch(number)}:
                unnoticed.append((view, member, other))
    page.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    assert unnoticed == []
    assert {view for view, members in noticed.items() if len(members) >= LEAST_MEMBERS} == {*COMMANDS}, noticed


def _document(environment: dict[str, str], command: tuple[str, ...]) -> Any:
    result = CliRunner().invoke(cli, [*command, "--json"], env=environment)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)
