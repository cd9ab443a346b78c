"""What a run waits for, said in its first log line, and that it goes on by itself: real checks, the real trigger."""

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException, ErrorType, TaskDeferred
from airflow.sdk.execution_time.comms import ErrorResponse
from sqlalchemy import Engine, text

from include.tiering.app import open_app
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD, upgrade
from include.tiering.database.schema import stores
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.database.transactions import writing
from include.tiering.kafka.log_dirs.dirs import LogDirLocation, identify
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.store_ownership import marker_to_bytes
from include.tiering.settings import load_settings
from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.readiness import MISSING_KEY, ReadinessTrigger, TieringReadySensor
from tests.doubles.airflow_api_server import AirflowApiServer, pool, serving
from tests.doubles.airflow_home import Deployment, airflow_database, deployment
from tests.doubles.broker_data import broker_data
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.s3_proxies import Refusal, Spoiler, refusing_s3_proxy
from tests.doubles.s3_server import CREDENTIALS, MotoServer, moto_server, raw_client
from tests.doubles.source_tree import ROOT

FAR_MS: Final = 10**14
COPY: Final = "tiering_copy"
EXPIRATION: Final = "tiering_expiration"
SIZES: Final = "tiering_remote_log_sizes"
QUALITY: Final = "tiering_quality"
AUDIT: Final = "tiering_audit"
HANDOVER: Final = "tiering_handover"
STORE_ALONE: Final = ("tiering_restore", "tiering_recovery_drill")
READERS: Final = (SIZES, QUALITY, AUDIT, HANDOVER, *STORE_ALONE)
DAG_IDS: Final = (COPY, EXPIRATION, *READERS)
WAITS: Final = "Waiting, not ready: "
Mend = Callable[[], object]


class World:
    """A deployment with log dirs of its own, and an Airflow that answers for its pools."""

    def __init__(self, directory: Path, airflow: AirflowApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.airflow = airflow
        self.monkeypatch = monkeypatch
        self.brokers = directory / "brokers"
        shutil.copytree(broker_data("public") / "stopped", self.brokers)
        self.deployed: Deployment = deployment(directory, migrated=False)
        text = self.deployed.config.read_text().replace(str(broker_data("public") / "stopped"), str(self.brokers))
        self.deployed.config.write_text(text)
        login = directory / "login.json"
        login.write_text('{"username": "reader", "password": "s3cret"}')
        login.chmod(0o600)
        variables = {"TIERING_AIRFLOW__URL": airflow.url, "TIERING_AIRFLOW__LOGIN_FILE": str(login)}
        for name, value in {**self.deployed.environment, **variables}.items():
            monkeypatch.setenv(name, value)

    def migrate(self) -> None:
        with self.deployed.open() as app:
            app.set_up.migrate()

    def copy_everything(self) -> None:
        """So that partitions are known by their remote segments."""
        with self.deployed.open() as app:
            app.copying.plan("run-1")
            app.copying.run_batch("run-1", "run-1/0")


class Said:
    """Airflow's tasks and triggers log to standard output here."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured
        self._text = ""

    def lines(self, words: str) -> list[str]:
        """All lines so far that hold these words."""
        self._text += self._captured.readouterr().out
        return [line for line in self._text.splitlines() if words in line]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


@dataclass(frozen=True)
class Bucket:
    """A deployment over an object store whose requests a test may spoil."""

    world: World
    spoiler: Spoiler


@pytest.fixture(scope="module")
def object_store() -> Iterator[MotoServer]:
    with moto_server() as server:
        yield server


@pytest.fixture
def bucket(world: World, object_store: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    name = f"bucket-{uuid4().hex}"
    object_store.make_bucket(name)
    with refusing_s3_proxy(object_store.endpoint_url, raw_client(object_store.endpoint_url)) as (url, spoiler):
        variables = {
            "TIERING_REMOTE_STORAGE__URL": f"s3://{name}/tiered",
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": url,
            **CREDENTIALS,
        }
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        # A store that is busy is asked eight times, and nothing here changes between the tries.
        monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
        world.migrate()
        yield Bucket(world, spoiler)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with serving(AirflowApiServer()) as airflow:
        yield World(tmp_path, airflow, monkeypatch)


def _behind(world: World) -> Mend:
    """As a version before this one would leave it: its revision, its identity, its marker.

    There is one migration, so the schema is of now: that is what a later one will do when it is mended.
    """
    settings = load_settings(world.deployed.config)
    engine = open_engine(settings.metadata.url.get_secret_value())
    upgrade(engine)
    cluster_id = identify(LogDirLocation(1, world.brokers / "broker-1")).cluster_id
    identity = StoreIdentities(engine, cluster_id).create(Uuid(os.urandom(16))).current
    with open_app(settings) as app:
        app.adapters.unguarded_storage.create_marker(identity)
    _say_revision(engine, "r0000")

    def mend() -> None:
        _say_revision(engine, HEAD)
        engine.dispose()
        world.migrate()

    return mend


def _say_revision(engine: Engine, revision: str) -> None:
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def _between(world: World) -> Mend:
    """A `migrate` of this version has brought the schema here, and has not recorded where keys lie."""
    world.migrate()
    with world.deployed.open() as app, writing(app.adapters.engine) as connection:
        names = ("generation_token", "url", "layout", "key_prefix", "conditional_writes")
        owned = app.adapters.stores.generations.accepted().current
        connection.execute(stores.update().values(dict.fromkeys(names)))
    before = StoreMarker(owned.cluster_id, owned.store_id, owned.generation)
    (world.deployed.remote / "_tiering-store.json").write_bytes(marker_to_bytes(before))
    return world.migrate


def _full(world: World) -> Mend:
    world.migrate()
    real = os.fstatvfs

    def full(descriptor: int) -> os.statvfs_result:
        fields = list(real(descriptor))
        fields[4] = 0
        return os.statvfs_result(fields)

    world.monkeypatch.setattr(os, "fstatvfs", full)
    return lambda: world.monkeypatch.setattr(os, "fstatvfs", real)


def _no_space(world: World) -> Mend:
    """The disk filled up after its free bytes were looked at."""
    world.migrate()
    real = os.write

    def write(descriptor: int, content: bytes) -> int:
        if bytes(content).startswith(b"written by a check"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content)

    world.monkeypatch.setattr(os, "write", write)
    return lambda: world.monkeypatch.setattr(os, "write", real)


def _read_only(world: World) -> Mend:
    world.migrate()
    real = os.link

    def link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    world.monkeypatch.setattr(os, "link", link)
    return lambda: world.monkeypatch.setattr(os, "link", real)


def _refusing(world: World) -> Mend:
    """A mount that is gone, with something else in its place."""
    world.migrate()
    world.deployed.remote.rename(world.directory / "away")
    world.deployed.remote.write_text("not a directory")

    def mend() -> None:
        world.deployed.remote.unlink()
        (world.directory / "away").rename(world.deployed.remote)

    return mend


def _unreadable(world: World) -> Mend:
    world.migrate()
    world.brokers.rename(world.directory / "unmounted")
    return lambda: (world.directory / "unmounted").rename(world.brokers)


def _no_slots(world: World) -> Mend:
    world.migrate()
    for name in (COPIER_POOL, EXPIRATION_POOL, READER_POOL):
        world.airflow.pools[name] = pool(name, 0)

    def mend() -> None:
        for name in (COPIER_POOL, EXPIRATION_POOL, READER_POOL):
            world.airflow.pools[name] = pool(name, 2)

    return mend


def _paused(world: World) -> Mend:
    world.migrate()
    return _pause(world)


def _pause(world: World) -> Mend:
    with world.deployed.open() as app:
        app.adapters.stores.work.pause(None, author="ada")

    def mend() -> None:
        with world.deployed.open() as app:
            app.adapters.stores.work.resume(None, author="ada")

    return mend


def _no_cluster_metadata(world: World) -> Mend:
    """They were read once, and are not to be seen now."""
    world.migrate()
    with world.deployed.open() as app:
        app.adapters.stores.seen_cluster_metadata.record()
    hidden = [broker / "__cluster_metadata-0" for broker in world.brokers.iterdir()]
    for log in hidden:
        log.rename(world.directory / log.parent.name)

    def mend() -> None:
        for log in hidden:
            (world.directory / log.parent.name).rename(log)

    return mend


def _foreign(world: World) -> Mend:
    world.migrate()
    marker = world.deployed.remote / "_tiering-store.json"
    ours = marker.read_text()
    marker.write_text(json.dumps({**json.loads(ours), "store_id": "AAAAAAAAAAAAAAAAAAAAAg"}))
    return lambda: marker.write_text(ours)


def _unmarked(world: World) -> Mend:
    """An empty directory where the disk should be mounted."""
    world.migrate()
    world.deployed.remote.rename(world.directory / "away")
    world.deployed.remote.mkdir()

    def mend() -> None:
        world.deployed.remote.rmdir()
        (world.directory / "away").rename(world.deployed.remote)

    return mend


@cache
def _sensors() -> dict[str, TieringReadySensor]:
    """The first task of each DAG whose work has to wait for something."""
    dags = DagBag(str(ROOT / "dags")).dags.values()
    return {dag.dag_id: task for dag in dags for task in dag.roots if isinstance(task, TieringReadySensor)}


class Wait:
    """The sensor of one DAG, driven as Airflow drives it: the task, then its trigger, then the task again."""

    def __init__(self, dag_id: str) -> None:
        self.sensor = _sensors()[dag_id]
        self.xcoms: dict[str, Any] = {}
        self.earlier_runs_that_wait = 0
        self.dag_run = SimpleNamespace(run_type="scheduled")
        self.context: Any = {"params": {"topics": None}, "ti": self, "dag_run": self.dag_run}

    def get_ti_count(self, dag_id: str, task_ids: list[str], states: list[str]) -> int:
        assert (dag_id, task_ids, states) == (self.sensor.dag_id, ["ready"], ["deferred"])
        return self.earlier_runs_that_wait

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def begin(self) -> dict[str, Any] | ReadinessTrigger:
        """What the sensor returns, or the trigger it left, polling quickly. Raises NotReadyError."""
        try:
            return self.sensor.execute(self.context)
        except TaskDeferred as deferred:
            _, arguments = deferred.trigger.serialize()
            return ReadinessTrigger(**{**arguments, "poll_seconds": 0.1})

    @property
    def missing(self) -> str:
        return str(self.xcoms[MISSING_KEY])


def _all_wait_and_go_on(
    said: Said, reason: str, mend: Mend, *, goes_on: Collection[str] = (), begins: Collection[str] = ()
) -> None:
    """Every DAG waits for `reason`, or says it and goes on; all go on by themselves when it is mended.

    Those of `begins` are not concerned by it.
    """
    waiting = {}
    for dag_id in DAG_IDS:
        before = len(said.lines(WAITS))
        begun = (wait := Wait(dag_id)).begin()
        if dag_id in begins:
            assert isinstance(begun, dict)
            assert begun["remarks"] == []
        elif dag_id in goes_on:
            assert isinstance(begun, dict)
            assert any(reason in line for line in begun["remarks"])
            assert any(reason in line for line in said.lines("; this run continues: "))
            assert wait.missing == "nothing"
        else:
            assert isinstance(begun, ReadinessTrigger)
            assert reason in wait.missing
            assert any(reason in line for line in said.lines(WAITS)[before:])
            waiting[dag_id] = (wait, begun)

    shown = len(said.lines(""))

    async def scenario() -> list[dict[str, Any]]:
        triggers = [asyncio.ensure_future(anext(trigger.run())) for _, trigger in waiting.values()]
        done, _ = await asyncio.wait(triggers, timeout=0.3)
        assert not done
        # Airflow's page shows the end of the log: the reason stays there, however often it is looked at.
        assert said.lines("")[shown:] == []
        mend()
        events = await asyncio.wait_for(asyncio.gather(*triggers), PATIENCE_SECONDS)
        return [dict(event.payload) for event in events]

    for (wait, _), event in zip(waiting.values(), asyncio.run(scenario()), strict=True):
        remarks = wait.sensor.on_answer(wait.context, event)["remarks"]
        # A check that was under way when all log dirs came back may have missed the first one.
        assert all("log dirs: 1 of 2 readable" in line for line in remarks), remarks
        assert wait.missing == "nothing"


def _all_fail_at_once(reason: str, mend: Mend) -> None:
    for dag_id in DAG_IDS:
        wait = Wait(dag_id)
        with pytest.raises(NotReadyError, match=f"^not ready:\\nstorage: .*{reason}"):
            wait.begin()
        assert reason in wait.missing
    mend()
    assert all(isinstance(Wait(dag_id).begin(), dict) for dag_id in DAG_IDS)


def test_every_dag_that_works_on_segments_begins_with_a_look() -> None:
    assert {dag_id: sensor.task_id for dag_id, sensor in _sensors().items()} == dict.fromkeys(DAG_IDS, "ready")
    pools = {dag_id: sensor.slot_pool for dag_id, sensor in _sensors().items()}
    assert pools == {COPY: COPIER_POOL, EXPIRATION: EXPIRATION_POOL, **dict.fromkeys(READERS, READER_POOL)}
    assert all(len(sensor.dag.roots) == 1 for sensor in _sensors().values())


@pytest.mark.parametrize(
    ("hurt", "reason", "goes_on"),
    [
        (_behind, f", this version needs {HEAD}: ./tiering migrate", ()),
        (_between, "does not say where the keys of its store lie: run ./tiering migrate", ()),
        (_read_only, "the file system is mounted read-only", ()),
        (_refusing, "storage: ", ()),
        (_unreadable, "log dirs: ", (EXPIRATION, *STORE_ALONE)),
        (_paused, "pause: all topics are paused: ./tiering resume", READERS),
        (
            _no_cluster_metadata,
            "topic facts: no directory of log_dirs shows __cluster_metadata-0",
            (EXPIRATION, *READERS),
        ),
    ],
)
def test_each_dag_waits_with_the_reason_and_goes_on_when_it_is_mended(
    world: World, said: Said, hurt: Callable[[World], Mend], reason: str, goes_on: Collection[str]
) -> None:
    _all_wait_and_go_on(said, reason, hurt(world), goes_on=goes_on)


@pytest.mark.parametrize(
    ("hurt", "reason", "begins"),
    [
        (_full, "needed: free space there or name another store", (EXPIRATION,)),
        (_no_space, "no space is left: free some or name another store", (EXPIRATION,)),
        (_no_slots, "has 0 slots, which pauses its batches", READERS),
    ],
)
def test_work_that_needs_no_space_and_no_slot_yet_begins(
    world: World, said: Said, hurt: Callable[[World], Mend], reason: str, begins: Collection[str]
) -> None:
    _all_wait_and_go_on(said, reason, hurt(world), begins=begins)


def test_each_dag_waits_for_its_pool_to_be_made(world: World) -> None:
    """Somebody deleted the pools in Airflow, whose sizes are still known here."""
    world.migrate()
    assert isinstance(Wait(COPY).begin(), dict)
    known = dict(world.airflow.pools)
    world.airflow.pools.clear()
    for dag_id in DAG_IDS:
        assert isinstance((wait := Wait(dag_id)).begin(), ReadinessTrigger)
        assert "so its tasks would never start: create it" in wait.missing
    world.airflow.pools.update(known)
    assert all(isinstance(Wait(dag_id).begin(), dict) for dag_id in DAG_IDS)


@pytest.mark.parametrize(
    ("hurt", "reason"),
    [(_foreign, "AAAAAAAAAAAAAAAAAAAAAg"), (_unmarked, "the store has no _tiering-store.json")],
)
def test_each_dag_fails_at_once_where_waiting_cannot_help(
    world: World, hurt: Callable[[World], Mend], reason: str
) -> None:
    _all_fail_at_once(reason, hurt(world))


@pytest.mark.parametrize(
    ("request_line", "status", "code", "reason"),
    [
        ("GET .*_tiering-store.json", 403, "AccessDenied", "AccessDenied (403): check the credentials"),
        ("PUT .*_tiering-probe", 503, "SlowDown", "SlowDown (503) to the last try: a later one may succeed"),
        ("POST .*delete", 403, "AccessDenied", "objects cannot be deleted"),
    ],
)
def test_each_dag_waits_for_an_object_store_that_refuses(
    bucket: Bucket, said: Said, request_line: str, status: int, code: str, reason: str
) -> None:
    bucket.spoiler.refusal = Refusal(re.compile(request_line), status, code)
    _all_wait_and_go_on(said, reason, lambda: setattr(bucket.spoiler, "refusal", None))


def test_deletions_do_not_wait_for_an_object_store_that_is_full(bucket: Bucket, said: Said) -> None:
    bucket.spoiler.refusal = Refusal(re.compile("PUT .*_tiering-probe"), 403, "QuotaExceeded")
    reason = "QuotaExceeded (403): free space in bucket"
    _all_wait_and_go_on(said, reason, lambda: setattr(bucket.spoiler, "refusal", None), begins=(EXPIRATION,))


def test_each_dag_fails_at_once_without_the_bucket(bucket: Bucket) -> None:
    """One that is made anew is empty, and then it is the marker that is missing."""
    bucket.spoiler.refusal = Refusal(re.compile(".*"), 404, "NoSuchBucket")
    _all_fail_at_once("create bucket ", lambda: setattr(bucket.spoiler, "refusal", None))


def test_a_disk_that_is_really_full(world: World, said: Said) -> None:
    world.deployed.remote.mkdir(exist_ok=True)
    options = ("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(world.deployed.remote))
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        world.migrate()
        enlarged = ["mount", "-o", "remount,size=512m", str(world.deployed.remote)]
        mend = partial(subprocess.run, enlarged, check=True)
        _all_wait_and_go_on(said, "free space there", mend, begins=(EXPIRATION,))
    finally:
        subprocess.run(["umount", str(world.deployed.remote)], check=True)


def test_an_archive_without_brokers_expires_and_is_counted(world: World) -> None:
    world.migrate()
    world.copy_everything()
    text = world.deployed.config.read_text()
    world.deployed.config.write_text(text.partition("[[log_dirs]]")[0])
    gone = Wait(EXPIRATION).begin()
    assert isinstance(gone, dict)
    assert gone["summary"] == "11 of 11 partitions ready"
    assert gone["waiting"] == []
    assert isinstance(Wait(SIZES).begin(), dict)
    with pytest.raises(NotReadyError, match="log_dirs is empty"):
        Wait(COPY).begin()


def test_the_schedule_adds_no_run_to_one_that_waits_and_a_person_may(world: World) -> None:
    mend = _no_slots(world)
    scheduled, asked_for = Wait(EXPIRATION), Wait(EXPIRATION)
    for wait in (scheduled, asked_for):
        wait.earlier_runs_that_wait = 1
    asked_for.dag_run.run_type = "manual"
    with pytest.raises(AirflowSkipException, match=r"an earlier run waits already: pool: .* has 0 slots"):
        scheduled.begin()
    assert isinstance(asked_for.begin(), ReadinessTrigger)
    mend()
    assert isinstance(scheduled.begin(), dict)


@pytest.mark.parametrize("refusal", [None, AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))])
def test_a_new_picture_is_shown_while_the_task_waits(
    world: World, monkeypatch: pytest.MonkeyPatch, said: Said, refusal: AirflowRuntimeError | None
) -> None:
    give_slots = _no_slots(world)
    begun = (wait := Wait(COPY)).begin()
    assert isinstance(begun, ReadinessTrigger)
    assert "pause: " not in wait.missing
    instance: Any = SimpleNamespace(dag_id=COPY, run_id="run", task_id="ready", map_index=-1)
    begun.task_instance = instance
    resume = _pause(world)
    shown: list[tuple[str, str, dict[str, Any]]] = []

    async def show(key: str, value: str, **where: Any) -> None:
        shown.append((key, value, where))
        give_slots()
        resume()
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(BaseXCom, "aset", show)
    assert _event(begun)["ready"]
    ((key, missing, where),) = shown
    assert key == MISSING_KEY
    assert missing.startswith("pause: all topics are paused")
    assert "; pool: pool remote_log_copier has 0 slots" in missing
    assert where == {"dag_id": COPY, "run_id": "run", "task_id": "ready", "map_index": -1}
    assert bool(said.lines("cannot be shown as XCom")) == (refusal is not None)


@pytest.mark.filterwarnings("default")
def test_airflows_own_runner_defers_the_run_and_takes_it_up_again(world: World, said: Said) -> None:
    airflow_database()
    mend = _no_slots(world)
    dag = DagBag(str(ROOT / "dags")).dags[EXPIRATION].partial_subset("ready", include_downstream=False)
    dag.get_task("ready").poll_seconds = 0.2
    seen: list[str] = []

    def person() -> None:
        seen.extend(eventually(lambda: said.lines(WAITS), "the sensor says why it waits"))
        mend()

    mending = threading.Thread(target=person, daemon=True)
    mending.start()
    run = dag.test()
    mending.join()
    assert (str(run.state), len(seen)) == ("success", 1)
    assert "pool remote_log_expiration has 0 slots" in seen[0]
    (instance,) = run.get_task_instances()
    assert instance.xcom_pull(task_ids="ready", key=MISSING_KEY) == "nothing"


def test_one_unreadable_directory_of_two_holds_up_its_own_partitions_alone(world: World) -> None:
    world.migrate()
    world.copy_everything()
    whole = _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))
    (world.brokers / "broker-2").rename(world.directory / "unmounted")
    event = _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))
    assert event["ready"]
    late = {line.partition(":")[0] for line in event["waiting"]} - {line.partition(":")[0] for line in whole["waiting"]}
    assert {"bigrecs-0", "audit_log-0", "orders-1"} <= late
    assert "audit_log-1" not in late
    assert any("broker-2" in line for line in event["waiting"])


def test_a_form_with_a_mistyped_topic_fails_at_once_with_the_nearest_name(world: World) -> None:
    world.migrate()
    event = _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS, topics=["ordrs", "bigrecs"]))
    assert not event["ready"]
    assert "there is no topic ordrs" in event["messages"][0]
    assert "did you mean orders?" in event["messages"][0]
    matching_nothing = _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS, topics=["ordrs*", "bigrecs"]))
    assert (matching_nothing["ready"], matching_nothing["remarks"]) == (True, ["no topic matches ordrs*"])


def test_one_paused_topic_holds_up_nobody_else_unless_it_is_the_only_one(world: World) -> None:
    world.migrate()
    with world.deployed.open() as app:
        app.adapters.stores.work.pause("orders", author="ada")
    event = _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS, topics=["orders", "bigrecs"]))
    assert (event["ready"], event["summary"]) == (True, "1 of 4 partitions ready")
    assert event["waiting"][0] == "orders-0: paused: ./tiering resume --topic orders"
    alone = _event(ReadinessTrigger(poll_seconds=0.01, deadline_ms=0, topics=["orders"]))
    assert (alone["ready"], alone["messages"]) == (False, alone["waiting"])
    expiration = ReadinessTrigger(
        poll_seconds=0.01, deadline_ms=0, slot_pool="remote_log_expiration", topics=["orders"]
    )
    assert _event(expiration)["ready"]


def test_the_sensor_says_in_one_line_what_goes_and_what_waits(said: Said) -> None:
    lines = [f"orders-{number}: paused" for number in range(5)]
    event = {"ready": True, "messages": [], "summary": "2 of 7 partitions ready", "waiting": lines, "remarks": []}
    wait = Wait(COPY)
    assert wait.sensor.on_answer(wait.context, event) == {"summary": event["summary"], "waiting": lines, "remarks": []}
    found = said.lines("")
    first = "2 of 7 partitions ready, waiting: orders-0: paused; orders-1: paused; orders-2: paused; ..."
    assert first in found[0]
    assert "Waiting: orders-3: paused" in found[1]
    assert "Waiting: orders-4: paused" in found[2]


def _event(trigger: ReadinessTrigger) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        running: Any = trigger.run()
        async with contextlib.aclosing(running) as events:
            return dict((await anext(events)).payload)

    return asyncio.run(asyncio.wait_for(first(), PATIENCE_SECONDS))
