"""What a cluster of processes makes of docker-compose.yaml, and the health checks of the containers."""

import importlib.util
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.errors import KafkaMissingError
from local.cluster import parts, up, watch
from local.cluster.assembly import _outside, _settings_template
from local.cluster.compose import ComposeError, HealthCheck, Mount, image_environment, read_services
from local.cluster.host import ForeignDirectoryError, Host, NamespaceError, State, addresses, require_namespaces
from local.cluster.secret_files import AUTHORITY, contents, write
from local.layout import ROOT
from tests.doubles.patience import eventually

_COMPOSE = (ROOT / "docker-compose.yaml").read_text()
_SMALL = """
services:
  late:
    image: tiering-platform
    command: [python, -c, "print(1)"]
    environment: {NAME: "${NAME:-default}", HERE: /opt/tiering/x}
    depends_on: {early: {condition: service_healthy}}
    secrets: [{source: key, target: /run/secrets/deep/key.txt}, plain]
    volumes: ["data:/srv/data:ro", "own:/srv/own"]
    healthcheck: {test: [CMD-SHELL, "true"], interval: 5s, timeout: 1m, retries: 2}
  early:
    image: other:1
secrets:
  key: {file: ./secrets/key.file}
  plain: {file: ./secrets/plain}
"""


def test_a_service_is_read_with_its_mounts_variables_and_check() -> None:
    services = read_services(_SMALL, {})
    assert list(services) == ["early", "late"]
    late = services["late"]
    assert late.command == ("python", "-c", "print(1)")
    assert late.environment == {"NAME": "default", "HERE": "/opt/tiering/x"}
    assert late.mounts == (
        Mount("data", "/srv/data", read_only=True),
        Mount("own", "/srv/own"),
        Mount("key.file", "/run/secrets/deep/key.txt", is_secret=True, read_only=True),
        Mount("plain", "/run/secrets/plain", is_secret=True, read_only=True),
    )
    assert late.health_check == HealthCheck(("sh", "-c", "true"), 5, 60, 2)
    assert late.is_ours
    assert not services["early"].is_ours
    assert read_services(_SMALL, {"NAME": "given"})["late"].environment["NAME"] == "given"


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ("image: other:1", "image: other:1\n    network_mode: host", "early has network_mode"),
        ("${NAME:-default}", "${NAME:?say it}", r"\$NAME is not set: say it"),
        ("image: other:1", "image: other:1\n    depends_on: {late: {}}", "early, late need each other"),
    ],
)
def test_what_is_not_understood_is_an_error(was: str, becomes: str, message: str) -> None:
    with pytest.raises(ComposeError, match=message):
        read_services(_SMALL.replace(was, becomes), {})


def test_every_service_of_the_compose_file_is_understood_and_comes_after_its_needs() -> None:
    services = read_services(_COMPOSE, {})
    order = list(services)
    for service in services.values():
        assert all(order.index(need) < order.index(service.name) for need in service.needs)
    assert order.index("airflow-init") < order.index("airflow-api-server") < order.index("airflow-worker-1")


def test_of_airflow_only_the_worker_of_its_queue_sees_the_brokers_log_dir() -> None:
    services = read_services(_COMPOSE, {})
    readers = {name for name, service in services.items() if "kafka-data" in {mount.source for mount in service.mounts}}
    assert readers == {"kafka", "spark-worker-1", "spark-worker-2", "airflow-worker-1"}
    assert services["airflow-worker-1"].command[-2:] == ("--queues", "broker-1")


def test_the_variables_of_the_image_are_those_of_its_dockerfile() -> None:
    text = "FROM x\nENV A=1 \\\n    B=/opt/y:$PATH\nENV C=3\nRUN true\n"
    assert image_environment(text) == {"A": "1", "B": "/opt/y:$PATH", "C": "3"}
    assert image_environment((ROOT / "docker/platform.Dockerfile").read_text())["AIRFLOW_HOME"] == "/srv/airflow"


def test_secrets_are_private_differ_and_are_never_written_over(tmp_path: Path) -> None:
    write(tmp_path / "secrets", contents(), lambda _: None)
    files = list((tmp_path / "secrets").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files if file.name != AUTHORITY} == {0o600}
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    first, second = contents(), contents()
    assert {name for name in first if first[name] == second[name]} == set()
    before = {file.name: file.read_text() for file in files}
    with pytest.raises(FileExistsError, match="nothing was written"):
        write(tmp_path / "secrets", contents(), lambda _: None)
    assert {file.name: file.read_text() for file in files} == before


def test_the_parts_of_one_set_of_secrets_match() -> None:
    found = contents()
    settings = tomllib.loads(found["tiering.toml"])
    assert settings["remote_storage"]["access_key_id"] == found["s3_access_key"]
    assert settings["remote_storage"]["secret_access_key"] == found["s3_secret_key"]
    roles = dict(re.findall(r"CREATE ROLE (\w+) LOGIN PASSWORD '(\w+)'", found["databases.sql"]))
    assert f"//tiering:{roles['tiering']}@" in settings["metadata"]["url"]
    assert f"//airflow:{roles['airflow']}@" in found["airflow_database_url"]
    assert f"//airflow:{roles['airflow']}@" in found["celery_result_backend"]
    password = re.search(r"requirepass (\w+)", found["redis.conf"])
    assert password
    assert f":{password[1]}@" in found["celery_broker_url"]


def test_nothing_is_copied_before_topics_are_included() -> None:
    assert tomllib.loads(contents()["tiering.toml"])["topics"]["include"] == []


@pytest.mark.parametrize("has_broker", [True, False])
def test_settings_outside_name_addresses_and_volumes(has_broker: bool, tmp_path: Path) -> None:
    inside = contents(_settings_template(has_broker=has_broker))["tiering.toml"]
    at = {"postgres": "127.9.9.2", "versitygw": "127.9.9.3", "airflow-api-server": "127.9.9.4"}
    found = tomllib.loads(_outside(inside, State(tmp_path), at, "127.9.9.5:29092"))
    assert "@127.9.9.2:5432/" in found["metadata"]["url"]
    assert found["remote_storage"]["endpoint_url"] == "https://127.9.9.3:7070"
    assert found["airflow"]["url"] == "http://127.9.9.4:8080"
    dirs = {entry["broker_id"]: entry["path"] for entry in found["log_dirs"]}
    volumes = tmp_path / "volumes"
    assert found["cluster"].get("bootstrap_servers") == ("127.9.9.5:29092" if has_broker else None)
    data, other = str(volumes / "kafka-data"), str(volumes / "kafka-data-2")
    assert dirs == ({1: data} if has_broker else {1: data, 2: other})


def test_every_service_has_an_address_at_which_its_ports_are_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = addresses(["a", "b"], [taken.getsockname()[1]])
        assert len(set(found.values())) == 2
        assert all(address.startswith("127.") and address != "127.0.0.1" for address in found.values())
    with socket.create_server(("0.0.0.0", 0)) as everywhere:  # noqa: S104
        port = everywhere.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"something else uses the ports {port}"):
            addresses(["a"], [port])


def test_a_cluster_removes_only_what_a_cluster_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    State(home).clear()
    home.mkdir()
    State(home).clear()
    (home / "precious").write_text("mine")
    with pytest.raises(ForeignDirectoryError, match=str(home)):
        State(home).clear()
    with pytest.raises(ForeignDirectoryError):
        State(home / "precious").clear()
    assert (home / "precious").read_text() == "mine"

    state, outside = State(tmp_path / "cluster"), home / "precious"
    state.create()
    (state.volumes / "left").write_text("by the last cluster")
    (state.root / "link").symlink_to(home)
    state.clear()
    assert list(state.root.iterdir()) == [state.marker]
    assert outside.exists()
    state.clear()


def test_up_refuses_a_directory_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("mine")
    monkeypatch.setattr(sys, "argv", ["up", "--home", str(tmp_path)])
    monkeypatch.setattr(up, "assemble", lambda *_, **__: pytest.fail("it went on"))
    assert up.main() == 1
    assert str(tmp_path) in capsys.readouterr().out
    assert (tmp_path / "precious").read_text() == "mine"


def test_up_clears_its_own_directory_after_a_cluster_without_a_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, elsewhere = tmp_path.resolve() / "cluster", tmp_path.resolve() / "elsewhere"
    monkeypatch.setattr(up, "DEFAULT_HOME", home)
    monkeypatch.setattr(sys, "argv", ["up", "--home", str(home)])
    monkeypatch.setattr(up, "assemble", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("far enough")))
    for directory in (home, elsewhere):
        directory.mkdir()
        (directory / "left").write_text("by an earlier version")
    assert up.main() == 1
    assert "far enough" in capsys.readouterr().out
    assert list(home.iterdir()) == []

    home.rmdir()
    home.symlink_to(elsewhere)
    assert up.main() == 1
    assert "far enough" not in capsys.readouterr().out
    assert (elsewhere / "left").exists()


def test_only_its_owner_enters_a_volume(tmp_path: Path) -> None:
    state = State(tmp_path / "cluster")
    state.create()
    made = Host(state, {}, {}, {"PATH": "/usr/bin"})
    (state.volumes / "old").mkdir(mode=0o755)
    for name in ("old", "new"):
        made.make_volume(name)
    modes = [path.stat().st_mode & 0o777 for path in (state.volumes, made.volume("old"), made.volume("new"))]
    assert modes == [0o711, 0o700, 0o700]


def test_a_script_that_a_shell_is_about_to_read_is_not_written_over(tmp_path: Path) -> None:
    """A health check begins right after the service, whose shell would find an empty file and end."""
    state = State(tmp_path / "cluster")
    state.create()
    made, service = Host(state, {}, {}, {"PATH": "/usr/bin"}), read_services(_SMALL, {})["early"]
    script = Path(next(word for word in made.command(service, ["true"]) if word.endswith(".sh")))
    with script.open() as opened:
        made.command(service, ["true"])
        assert script.stat().st_ino == os.fstat(opened.fileno()).st_ino
        before = script.read_text()
        made.command(replace(service, mounts=(Mount("data", "/srv/data"),)), ["true"])
        assert script.read_text() != before
        assert opened.read() == before
    assert list(state.scripts.iterdir()) == [script]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    try:
        require_namespaces()
    except NamespaceError as error:
        pytest.skip(str(error))
    state = State(tmp_path / "cluster")
    state.create()
    (state.secrets / "key.file").write_text("the key")
    (state.secrets / "plain").write_text("plain")
    for name in ("data", "own", "others"):
        (state.volumes / name).mkdir()
        (state.volumes / name / "file").write_text(name)
    base = {"PATH": "/usr/bin:/bin"}
    made = Host(state, {"late": "127.9.9.2", "early": "127.9.9.3"}, {"IMAGE": "/opt/tiering/bin:$PATH"}, base)
    made.write_hosts()
    return made


def _said(host: Host, script: str) -> str:
    late = read_services(_SMALL, {})["late"]
    command, environment = host.command(late, ["sh", "-c", script]), host.environment(late)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_service_finds_its_mounts_and_no_others(host: Host) -> None:
    assert _said(host, "cat /srv/data/file /srv/own/file /run/secrets/deep/key.txt /run/secrets/plain") == (
        "dataownthe keyplain"
    )
    assert _said(host, f"find {host.state.root}") == f"{host.state.root}\n"
    assert "Read-only file system" in _said(host, "touch /srv/data/new")
    assert "Read-only file system" in _said(host, "echo x >/run/secrets/plain")
    _said(host, "echo changed >/srv/own/file")
    assert (host.volume("own") / "file").read_text() == "changed\n"
    assert not Path("/srv/own").exists()
    assert not Path("/run/secrets/deep").exists()


def test_a_service_has_a_name_an_address_and_the_paths_of_this_machine(host: Host) -> None:
    assert _said(host, "hostname; getent hosts early late").split() == [
        *("late", "127.9.9.3", "early", "127.9.9.2", "late")
    ]
    assert _said(host, "echo $HERE $IMAGE $NAME; pwd").split() == [
        *(f"{ROOT}/x", f"{ROOT}/bin:/usr/bin:/bin", "default", str(ROOT))
    ]


@pytest.fixture(scope="module")
def healthy() -> ModuleType:
    specification = importlib.util.spec_from_file_location("healthy", ROOT / "docker" / "healthy.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("status", "is_healthy"), [("healthy", True), ("unhealthy", False), (None, False)])
def test_a_part_of_airflow_is_healthy_by_its_heartbeat(
    healthy: ModuleType, status: str | None, is_healthy: bool
) -> None:
    answer = json.dumps({"triggerer": {"status": status}, "scheduler": {"status": "healthy"}}).encode()
    assert healthy.is_part_healthy(answer, "triggerer") is is_healthy
    assert not healthy.is_part_healthy(answer, "dag_processor")


def test_a_spark_worker_is_alive_if_the_master_says_so_of_its_host(healthy: ModuleType) -> None:
    answer = json.dumps({"workers": [{"host": "a", "state": "ALIVE"}, {"host": "b", "state": "DEAD"}]}).encode()
    assert healthy.is_worker_alive(answer, "a")
    assert not healthy.is_worker_alive(answer, "b")
    assert not healthy.is_worker_alive(answer, "c")


def test_without_a_broker_bundled_log_dirs_take_its_place_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: object) -> None:
        raise KafkaMissingError("mvn is not on the PATH")

    for name in ("redis_directory", "postgresql_directory", "versitygw_directory"):
        monkeypatch.setattr(parts, name, lambda: tmp_path)
    monkeypatch.setattr(parts, "kafka_by_maven", missing)
    state = State(tmp_path / "cluster")
    state.create()
    services = read_services(_COMPOSE, {})
    found = parts.parts(services, state, dict.fromkeys(services, "127.9.9.9"), {})
    assert found.no_broker == "mvn is not on the PATH"
    assert set(found.services) == services.keys() - {"kafka"}
    assert not [service.name for service in found.services.values() if "kafka" in service.needs]
    for name in ("kafka-data", "kafka-data-2"):
        assert (state.volumes / name / "meta.properties").is_file()
    for name in ("spark-worker-1", "airflow-worker-2", "airflow-triggerer"):
        targets = {mount.target: mount.read_only for mount in found.services[name].mounts}
        assert targets["/srv/kafka/broker-1"]
        assert targets["/srv/kafka/broker-2"]


def test_a_broker_has_the_properties_of_its_variables_and_remote_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "kafka_by_maven", lambda _: KafkaHome("4.3.1", "/jars/*"))
    monkeypatch.setattr(parts, "java", lambda: "/usr/bin/java")
    for name in ("redis_directory", "postgresql_directory", "versitygw_directory"):
        monkeypatch.setattr(parts, name, lambda: tmp_path)
    state = State(tmp_path / "cluster")
    state.create()
    services = read_services(_COMPOSE, {})
    found = parts.parts(services, state, dict.fromkeys(services, "127.9.9.9"), {})
    assert found.has_broker
    written = (state.volumes / "kafka-configuration" / "server.properties").read_text()
    properties = dict(line.split("=", 1) for line in written.splitlines())
    assert properties["log.dirs"] == "/var/lib/kafka/data"
    assert properties["advertised.listeners"] == "INSIDE://kafka:9092,HOST://127.9.9.9:29092"
    assert properties["listeners"] == services["kafka"].environment["KAFKA_LISTENERS"]
    assert properties["remote.log.storage.system.enable"] == "true"
    assert properties["remote.log.metadata.manager.listener.name"] == "INSIDE"


def test_a_secret_in_arguments_or_in_a_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PERIOD_SECONDS", 0.05)
    state = State(tmp_path / "cluster")
    state.create()
    write(state.secrets, contents(), lambda _: None)
    state.settings.write_text((state.secrets / "tiering.toml").read_text())
    password = (state.secrets / "postgres_password").read_text()
    log = state.logs / "service.log"

    reader, writer = os.pipe()
    with open(reader), open(writer, "w"), watch.Watch(state) as looking:  # noqa: PTH123
        assert looking.files_with_secrets() == []
        log.write_bytes(b"\0it is " + password.encode())
        assert looking.files_with_secrets() == [str(log)]
        process = subprocess.Popen([sys.executable, "-c", "input()", password], stdin=reader)
        try:
            born = psutil.Process(process.pid).create_time()
            state.pid_files.mkdir()
            (state.pid_files / "a.json").write_text(json.dumps({"pid": process.pid, "born": born}))
            eventually(lambda: bool(looking.seen), "the arguments are seen")
        finally:
            process.kill()
            process.wait()
    assert [place.startswith("the arguments of python") for place in looking.seen] == [True]
    assert looking.most_gib > 0
