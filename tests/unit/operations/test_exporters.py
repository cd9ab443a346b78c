"""The endpoint over HTTP: who may read it, what it says without a database, and where it listens."""

import socket
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from include.tiering.errors import MetadataUnavailableError, SettingError
from include.tiering.operations import exporters
from include.tiering.operations.exporters import MetricsServer, read_token
from include.tiering.operations.monitoring import MetricValues
from include.tiering.telemetry.metrics import Metric, MetricKind
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.scrapes import get, samples_of, serving

COPIED = Metric("copied_bytes", MetricKind.COUNTER, ("topic",), 'Bytes of "x".')
LIMIT = Metric("limit", MetricKind.GAUGE, (), "Limit.")
LAG = Metric("lag", MetricKind.GAUGE, ("topic",), "No value yet.")
TOKEN = "a-token-of-many-characters"


def values() -> Sequence[MetricValues]:
    copied = MetricValues(COPIED, ((("orders",), 5.0), (('a"b',), 2.0)))
    return (copied, MetricValues(LIMIT, (((), float("inf")),)), MetricValues(LAG, ()))


def test_what_is_shown() -> None:
    with serving(values) as server:
        status, text = get(server)
    assert status == 200
    assert samples_of(text) == {
        ("copied_bytes_total", (("topic", "orders"),)): 5,
        ("copied_bytes_total", (("topic", 'a"b'),)): 2,
        ("limit", ()): float("inf"),
    }
    assert "# TYPE copied_bytes_total counter" in text


def test_openmetrics_is_answered_to_who_asks_for_it() -> None:
    with serving(values) as server:
        status, text = get(server, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert (status, text.splitlines()[-1]) == (200, "# EOF")


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("127.0.0.1.evil.example:9464", 403), ("", 403)]
    + [(name, 200) for name in ("localhost:9464", "LOCALHOST", "127.0.0.1", "[::1]:9464")],
)
def test_a_name_that_points_to_loopback_is_refused_without_a_token(host: str, status: int) -> None:
    with serving(values) as server:
        found, text = get(server, headers={"Host": host})
    assert found == status
    assert ("copied_bytes" in text) == (status == 200)
    with serving(values, TOKEN) as server:
        assert get(server, headers={"Host": host, "Authorization": f"Bearer {TOKEN}"})[0] == 200


def test_clients_that_send_nothing_are_limited_in_number_and_time_and_fill_no_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exporters, "_MOST_CLIENTS", 2)
    monkeypatch.setattr(exporters, "_REQUEST_SECONDS", 1.0)
    with serving(values) as server:
        host, _, port = server.address.partition(":")
        silent = [socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) for _ in range(3)]
        assert silent[2].recv(1) == b"", "one too many"
        for _ in range(4):
            with suppress(OSError):
                silent[0].sendall(b"G")
            time.sleep(0.3)
        assert silent[0].recv(1) == b"", "its time is over, though it went on sending"
        assert silent[1].recv(1) == b""
        for one in silent:
            one.close()
        eventually(lambda: get(server)[0] == 200, "there is a place again")
    assert "Traceback" not in capfd.readouterr().err


def test_other_paths_are_not_there_and_health_needs_no_database() -> None:
    with serving(_unavailable, TOKEN) as server:
        assert get(server, "/")[0] == 404
        assert get(server, "/-/healthy")[0] == 200


def _unavailable() -> Sequence[MetricValues]:
    raise MetadataUnavailableError("database postgresql://tiering:hunter2@db: refused")


def test_a_database_that_does_not_answer_fails_the_scrape_and_no_secret_is_said() -> None:
    with serving(_unavailable) as server:
        status, text = get(server)
    assert status == 503
    assert "refused" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        (f"Bearer {TOKEN}x", 401),
        ("Bearer ", 401),
    ],
)
def test_a_token_is_demanded_on_loopback_too(authorization: str | None, status: int) -> None:
    with serving(values, TOKEN) as server:
        found, text = get(server, headers={} if authorization is None else {"Authorization": authorization})
    assert found == status
    assert ("copied_bytes" in text) == (status == 200)
    assert TOKEN not in text


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:9464", "example.org:9464"])
def test_without_a_token_it_listens_on_loopback_only(address: str) -> None:
    with pytest.raises(SettingError, match="--token-file"):
        MetricsServer(values, address=address)


def test_with_a_token_it_listens_on_every_address() -> None:
    with MetricsServer(values, address="0.0.0.0:0", token=TOKEN) as server:
        assert server.address.startswith("0.0.0.0:")


@pytest.mark.parametrize("address", ["", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(SettingError, match="HOST:PORT"):
        MetricsServer(values, address=address)


def test_an_address_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=str(port)):
            MetricsServer(values, address=f"127.0.0.1:{port}")


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    file.chmod(stat.S_IRUSR | stat.S_IRGRP)
    with pytest.raises(SettingError, match="chmod 600"):
        read_token(file)


@pytest.mark.parametrize("text", ["", "short", "two words of many characters", "ümlaut-of-many-characters", "x" * 5000])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(SettingError) as refused:
        read_token(file)
    assert not text or text not in str(refused.value)
    with pytest.raises(SettingError, match="absent"):
        read_token(tmp_path / "absent")
