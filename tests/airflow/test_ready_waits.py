"""What a run waits for, said in its first log line, and that it goes on by itself: real checks, the real trigger."""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD, migration_config
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.database.transactions import writing
from include.tiering.log_source.log_dir.dirs import LogDir, identify
from include.tiering.model.ids import Uuid
from include.tiering.pools.contract import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.remote_storage import file as file_storage
from include.tiering.settings import load_settings
from include.tiering.wiring import open_tiering
from plugins.tiering_airflow.errors import NotReadyError
from plugins.tiering_airflow.sensors import TieringReadySensor
from plugins.tiering_airflow.triggers import ReadinessTrigger
from tests.doubles.airflow_api_server import AirflowApiServer, pool, serving
from tests.doubles.airflow_home import Deployment, deployment
from tests.doubles.broker_data import broker_data

FAR_MS = 10**14
Mend = Callable[[], None]
WAITS = "Waiting, not ready: "


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
        with open_tiering(load_settings(self.deployed.config)) as tiering:
            tiering.migrate()

    def copy_everything(self) -> None:
        """So that partitions are known by their remote segments."""
        with open_tiering(load_settings(self.deployed.config)) as tiering:
            tiering.plan_copy("run-1")
            tiering.copy_batch("run-1", "run-1/0")


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


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with serving(AirflowApiServer()) as airflow:
        yield World(tmp_path, airflow, monkeypatch)


def _behind(world: World) -> Mend:
    """As the version before left it: its schema, its identity, its marker."""
    settings = load_settings(world.deployed.config)
    before = ScriptDirectory.from_config(migration_config()).get_revision(HEAD).down_revision
    engine = open_engine(settings.metadata.url.get_secret_value())
    with writing(engine) as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, str(before))
    cluster_id = identify(LogDir(1, world.brokers / "broker-1")).cluster_id
    identity = StoreIdentities(engine, cluster_id).create(Uuid(os.urandom(16)))
    engine.dispose()
    with open_tiering(settings) as tiering:
        tiering.unguarded_storage.create_marker(identity)
    return world.migrate


def _full(world: World) -> Mend:
    world.migrate()
    real = os.fstatvfs

    def full(descriptor: int) -> os.statvfs_result:
        fields = list(real(descriptor))
        fields[4] = 0
        return os.statvfs_result(fields)

    world.monkeypatch.setattr(file_storage.os, "fstatvfs", full)
    return lambda: world.monkeypatch.setattr(file_storage.os, "fstatvfs", real)


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
    return lambda: (world.directory / "unmounted").rename(world.brokers) and None


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
    with open_tiering(load_settings(world.deployed.config)) as tiering:
        tiering.work.pause(None, author="ada")

    def mend() -> None:
        with open_tiering(load_settings(world.deployed.config)) as tiering:
            tiering.work.resume(None, author="ada")

    return mend


def _no_facts(world: World) -> Mend:
    """They were read once, and are not to be seen now."""
    world.migrate()
    with open_tiering(load_settings(world.deployed.config)) as tiering:
        tiering.facts_memory.remember()
    hidden = [broker / "__cluster_metadata-0" for broker in world.brokers.iterdir()]
    for log in hidden:
        log.rename(world.directory / log.parent.name)

    def mend() -> None:
        for log in hidden:
            (world.directory / log.parent.name).rename(log)

    return mend


@pytest.mark.parametrize("slot_pool", [COPIER_POOL, EXPIRATION_POOL])
@pytest.mark.parametrize(
    ("hurt", "reason"),
    [
        (_behind, f", this version needs {HEAD}: ./tiering migrate"),
        (_full, "needed: free space there or name another store"),
        (_refusing, "storage: "),
        (_unreadable, "log dirs: "),
        (_no_slots, "has 0 slots: that is a pause"),
        (_paused, "pause: all topics are paused: ./tiering resume"),
        (_no_facts, "topic facts: no directory of log_dirs shows __cluster_metadata-0"),
    ],
)
def test_a_run_waits_with_the_reason_and_goes_on_when_it_is_mended(
    world: World, said: Said, hurt: Callable[[World], Mend], reason: str, slot_pool: str
) -> None:
    mend = hurt(world)

    async def scenario() -> dict[str, Any]:
        trigger = ReadinessTrigger(poll_seconds=0.02, deadline_ms=FAR_MS, slot_pool=slot_pool)
        waiting = asyncio.ensure_future(anext(trigger.run()))
        async with asyncio.timeout(60):
            while not said.lines(WAITS) and not waiting.done():
                await asyncio.sleep(0.02)
        assert not waiting.done(), waiting.result().payload
        assert reason in said.lines(WAITS)[0]
        mend()
        return dict((await asyncio.wait_for(waiting, 60)).payload)

    event = asyncio.run(scenario())
    assert (event["ready"], event["messages"]) == (True, [])
    # Once for each picture, not once for each look.
    assert len(said.lines(WAITS)) == len({line.partition(WAITS)[2] for line in said.lines(WAITS)})


def test_a_foreign_store_fails_at_once_and_the_next_try_goes_on_when_it_is_mended(world: World) -> None:
    world.migrate()
    marker = world.deployed.remote / "_tiering-store.json"
    ours = marker.read_text()
    marker.write_text(json.dumps({**json.loads(ours), "store_id": "AAAAAAAAAAAAAAAAAAAAAg"}))
    event = _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))
    with pytest.raises(NotReadyError, match=r"^not ready:\nstorage: .*AAAAAAAAAAAAAAAAAAAAAg"):
        TieringReadySensor(task_id="ready").on_answer({}, event)
    marker.write_text(ours)
    assert _event(ReadinessTrigger(poll_seconds=60, deadline_ms=FAR_MS))["ready"]


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


def test_one_paused_topic_holds_up_nobody_else_unless_it_is_the_only_one(world: World) -> None:
    world.migrate()
    with open_tiering(load_settings(world.deployed.config)) as tiering:
        tiering.work.pause("orders", author="ada")
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
    event = {"ready": True, "messages": [], "summary": "2 of 7 partitions ready", "waiting": lines}
    sensor = TieringReadySensor(task_id="ready")
    assert sensor.on_answer({}, event) == {"summary": event["summary"], "waiting": lines}
    found = said.lines("")
    first = "2 of 7 partitions ready, waiting: orders-0: paused; orders-1: paused; orders-2: paused; ..."
    assert first in found[0]
    assert "Waiting: orders-3: paused" in found[1]
    assert "Waiting: orders-4: paused" in found[2]


def _event(trigger: ReadinessTrigger) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        async with contextlib.aclosing(trigger.run()) as events:
            return dict((await anext(events)).payload)

    return asyncio.run(asyncio.wait_for(first(), 60))
