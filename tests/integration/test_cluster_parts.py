"""Stores of docker-compose.yaml as real servers in namespaces of their own: who gets in, and what others can see."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import psutil
import pytest
from botocore.exceptions import ClientError, SSLError
from kombu.connection import Connection
from kombu.exceptions import KombuError
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from local import processes
from local.cluster import assembly
from local.cluster.assembly import Assembled, assemble
from local.cluster.cluster import Cluster, stop
from local.cluster.host import NamespaceError
from local.cluster.in_flight import kill
from local.cluster.keeper import Keeper
from local.cluster.programs import ProgramMissingError
from local.cluster.secret_files import AUTHORITY
from local.platform import PlatformError

pytestmark = pytest.mark.integration
_STORES = ("postgres", "redis", "versitygw")


@dataclass
class Stores:
    assembled: Assembled
    said: list[str]

    @property
    def cluster(self) -> Cluster:
        return self.assembled.cluster

    def secret(self, name: str) -> str:
        return (self.cluster.state.secrets / name).read_text().strip()

    def inside(self, name: str, server: str) -> str:
        """A secret with a server's address in place of its name, and the paths of this machine."""
        found = self.secret(name).replace(f"@{server}:", f"@{self.at(server)}:")
        return found.replace("/run/secrets", str(self.cluster.state.secrets))

    def at(self, service: str) -> str:
        return self.cluster.host.addresses[service]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "class_archive", lambda *_: None)
        root = tmp_path_factory.mktemp("cluster")
        # PostgreSQL's user has to get to its volume.
        for directory in (root, *root.parents):
            if directory.name.startswith("pytest-of"):
                break
            directory.chmod(0o711)
        root.parents[1].chmod(0o711)
        try:
            assembled = assemble(root / "state", say=said.append)
        except (NamespaceError, ProgramMissingError) as error:
            pytest.skip(str(error))
    assembled.cluster.services = {name: assembled.cluster.services[name] for name in _STORES}
    try:
        assembled.cluster.start()
        yield Stores(assembled, said)
    finally:
        stop(assembled.cluster.state, said.append)


def test_each_database_has_a_role_that_may_not_enter_the_other(stores: Stores) -> None:
    url = make_url(stores.inside("airflow_database_url", "postgres"))
    with create_engine(url, poolclass=NullPool).connect() as connection:
        assert connection.execute(text("select current_user, current_database()")).one() == ("airflow", "airflow")
        assert not connection.execute(text("select rolsuper from pg_roles where rolname = current_user")).scalar()
    for refused in (url.set(database="tiering"), url.set(password="guessed"), url.set(username="postgres")):
        with pytest.raises(OperationalError), create_engine(refused, poolclass=NullPool).connect():
            pass


def test_redis_asks_for_the_password(stores: Stores) -> None:
    url = stores.inside("celery_broker_url", "redis")
    with Connection(url) as connection:
        assert connection.ensure_connection(max_retries=1).connected
    for refused in (url.replace("//:", "//:x"), re.sub("//.*@", "//", url)):
        with pytest.raises(KombuError), Connection(refused) as connection:
            connection.ensure_connection(max_retries=1)


def test_the_store_has_its_bucket_and_asks_for_its_key(stores: Stores) -> None:
    def client(secret: str, *, trusting: bool = True) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"https://{stores.at('versitygw')}:7070",
            verify=str(stores.cluster.state.secrets / AUTHORITY) if trusting else True,
            region_name="us-east-1",
            aws_access_key_id=stores.secret("s3_access_key"),
            aws_secret_access_key=secret,
        )

    assert client(stores.secret("s3_secret_key")).list_objects_v2(Bucket="tiering")["KeyCount"] == 0
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client("guessed").list_objects_v2(Bucket="tiering")
    with pytest.raises(SSLError):
        client(stores.secret("s3_secret_key"), trusting=False).list_objects_v2(Bucket="tiering")


def test_no_secret_stands_in_an_argument_a_script_or_a_log(stores: Stores) -> None:
    state = stores.cluster.state
    secrets = {
        word
        for file in state.secrets.iterdir()
        for word in file.read_text().replace('"', " ").replace(":", " ").replace("@", " ").replace("'", " ").split()
        if len(word) >= 40
    }
    assert len(secrets) >= 8
    running = processes.recorded(state.pid_files)
    whole = {*running.values(), *processes.family(running.values(), str(state.root))}
    shown = [" ".join(process.cmdline()) for process in whole]
    shown += [file.read_text() for folder in (state.logs, state.scripts) for file in folder.iterdir()]
    assert [word for word in secrets for text_ in shown if word in text_] == []


def test_the_state_files_say_what_runs(stores: Stores) -> None:
    state = stores.cluster.state
    recorded = {file.stem: json.loads(file.read_text())["pid"] for file in state.pid_files.iterdir()}
    assert set(recorded) == set(_STORES)
    listening = {
        (connection.laddr.ip, connection.laddr.port)
        for pid in recorded.values()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    expected = {("postgres", 5432), ("redis", 6379), ("versitygw", 7070)}
    assert listening == {(stores.at(name), port) for name, port in expected}


@pytest.mark.parametrize("name", ["postgres", "versitygw"])
def test_a_server_that_was_killed_is_started_again(stores: Stores, name: str) -> None:
    cluster = stores.cluster
    before = processes.recorded(cluster.state.pid_files)[name]
    assert cluster.ended() == []
    began = time.monotonic()
    with Keeper(cluster, stores.said.append) as keeper:
        kill([before, *processes.family([before], "")])
        assert keeper.wait_for(name, began) > began
    assert cluster.ended() == []
    after = processes.recorded(cluster.state.pid_files)[name]
    assert after.pid != before.pid
    check = cluster.services[name].health_check
    assert check is not None
    cluster.run(name, *check.command)


def test_a_service_that_ends_is_named_with_its_last_lines(stores: Stores) -> None:
    cluster = stores.cluster
    broken = replace(cluster.services["redis"], name="redis-2", command=("sh", "-c", "echo out of luck; exit 3"))
    alone = Cluster(cluster.state, {"redis-2": broken}, cluster.host, stores.said.append)
    with pytest.raises(PlatformError, match=r"(?s)redis-2 ended.*out of luck"):
        alone.start()
