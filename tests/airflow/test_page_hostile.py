"""Hostile and overlong input to the page *Tiering*: each request is answered with a reason, none breaks the server."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from include.tiering.configs.config_store import ALL_BROKERS
from plugins.tiering_airflow.web.page import URL_PREFIX
from tests.airflow.conftest import Ask
from tests.doubles.airflow_home import Deployment
from tests.doubles.orphans import plant_orphan

# Airflow's web application imports a test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

SAME_ORIGIN: Final = {"Origin": "http://airflow", "Sec-Fetch-Site": "same-origin"}
TEXTS: Final = (
    *("", " ", "\x00", "\n", "\U0001f600", "\u202eorders", "%", "_", "*", "[", "[!", "\\", "'", '"', "--", ";"),
    *("<script>alert(1)</script>", "a' OR 1=1--", "../../etc/passwd", "*a" * 124 + "b", "x" * 249, "x" * 5_000, "NaN"),
    *(
        "null",
        "true",
        "0x10",
        "1e400",
        "-0",
        "-1",
        "٣",
        "9" * 400,
        str(2**31),
        str(2**63 - 1),
        str(2**63),
        str(-(2**63)),
    ),
)
READS: Final = {
    "/topics": ("search", "sort", "descending", "offset", "limit"),
    "/topics.csv": ("search",),
    "/topic": ("name",),
    "/segments": ("topic", "partition", "topic_id", "before"),
    "/retention": ("topic", "retention_ms", "retention_bytes", "partitions"),
    "/runbook": ("entry",),
    "/backfill": ("topic", "quota"),
    "/throughput": ("hours",),
}
SOUND: Final = {
    "/topic": {"name": "orders"},
    "/segments": {"topic": "orders", "partition": "0"},
    "/retention": {"topic": "orders"},
}


@pytest.mark.parametrize("path", READS)
def test_any_text_in_any_parameter(ask: Ask, deployed: Deployment, path: str) -> None:
    deployed.copied("orders")
    for parameter in READS[path]:
        for text in TEXTS:
            answer = ask(URL_PREFIX + path, params={**SOUND.get(path, {}), parameter: text})
            assert answer.status_code in (200, 400, 422), (parameter, text, answer.text)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff\xfe", b"[" * 4_000, b"{}" * 3_000, b'{"topic": null, "paused": NaN}', b'"' + b"x" * 5_000 + b'"'),
        b'{"topic": 1e400, "paused": true}',
        b'{"topic": "orders", "topic_id": null, "partition": 1e400, "reason": "r", "confirm": null}',
        b'{"topic": "orders", "topic_id": null, "partition": true, "reason": "r", "confirm": null}',
        b'{"finding_ids": [9223372036854775808]}',
        b'{"finding_ids": [1, 1.5]}',
        b'{"entity_type": "brokers", "entity_name": null, "name": "tiering.copy.total.max.bytes.per.second", "value": "'
        + b"9" * 400
        + b'"}',
    ],
)
def test_any_body(ask: Ask, deployed: Deployment, content: bytes) -> None:
    headers = {**SAME_ORIGIN, "Content-Type": "application/json"}
    for path in ("pause", "limits", "accept", "skip"):
        answer = ask(f"{URL_PREFIX}/{path}", "admin", "POST", content=content, headers=headers)
        assert (answer.status_code, list(answer.json())) == (400, ["detail"]), (path, answer.text)
    with deployed.open() as app:
        assert app.adapters.stores.configs.snapshot().values == {}
        assert app.adapters.stores.work.paused_topics() == frozenset()


def test_two_operators_at_once_change_one_thing_after_the_other(ask: Ask, deployed: Deployment) -> None:
    deployed.copied("orders")
    plant_orphan(deployed.remote)
    with deployed.open() as app:
        app.audit.run("audit")
        finding, *_ = app.adapters.stores.audits.findings()
    name = "tiering.copy.total.max.bytes.per.second"
    wanted = [
        {"entity_type": "brokers", "entity_name": None, "name": name, "value": f"{mib}MiB"} for mib in range(1, 9)
    ]
    accepted = {"finding_ids": [finding.finding_id]}

    def change(number: int) -> list[int]:
        role = ("op", "admin")[number % 2]
        requests = [
            ("limits", wanted[number]),
            ("pause", {"topic": "orders", "paused": number % 4 < 2}),
            ("accept", accepted),
        ]
        return [
            ask(f"{URL_PREFIX}/{path}", role, "POST", json=body, headers=SAME_ORIGIN).status_code
            for path, body in requests
        ]

    with ThreadPoolExecutor(8) as pool:
        limits, pauses, acceptances = zip(*pool.map(change, range(8)), strict=True)
    assert (set(limits), set(pauses)) == ({200}, {200})
    assert set(acceptances) == {200}
    with deployed.open() as app:
        stores = app.adapters.stores
        history = stores.configs.history(ALL_BROKERS)
        events = stores.events.newest(100)
        assert stores.configs.of_entity(ALL_BROKERS)[name] == history[-1].new_value
        is_paused = "orders" in stores.work.paused_topics()
    assert {change.new_value for change in history} == {str(mib * 2**20) for mib in range(1, 9)}
    assert [change.old_value for change in history] == [None, *[change.new_value for change in history][:-1]]
    assert {change.author for change in history} == {"a op (page Tiering)", "a admin (page Tiering)"}
    assert sum(event.kind == "audit finding accepted" for event in events) == 1
    kinds = [event.kind for event in events if event.kind in ("pause", "resume")]
    assert kinds[0] == ("pause" if is_paused else "resume")
    assert all(one != other for one, other in itertools.pairwise(kinds))
