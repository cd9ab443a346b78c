"""A rehearsal that does not come to a broker, and what it leaves: nothing, in the deployment and beside it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.app.rehearse import Watcher, rehearse, settings_of
from include.tiering.broker_process.broker_process import BrokerProcess
from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.throw_away import ThrowAwayBroker
from include.tiering.errors import (
    BrokerProcessError,
    RehearsalError,
    RehearsalSpaceError,
    SettingError,
    TieringError,
    UnknownTopicError,
)
from include.tiering.settings import TieringSettings, load_settings, to_environment
from tests.doubles.broker_data import broker_data, copy_of
from tests.unit.app.test_leaders import Leaders

STOPPED = "stopped"
KAFKA = KafkaHome("4.3.1", "/jars/*")


@contextmanager
def _uncounted(_activity: str, _bytes: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    made = tmp_path / "scratch"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.fixture
def settings(tmp_path: Path) -> TieringSettings:
    """Of a deployment that reads two real brokers' directories, and has neither database nor store yet."""
    brokers = {number: broker_data("public") / STOPPED / f"broker-{number}" for number in (1, 2)}
    return load_settings(
        environ={
            "TIERING_LOG_DIRS": ",".join(f"{number}:{path}" for number, path in brokers.items()),
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'platform' / 'tiering.db'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
        }
    )


def attempt(settings: TieringSettings, topic: str, messages: list[str], *, keep: bool = False) -> None:
    watcher = Watcher(messages.append, lambda _: None, _uncounted)
    with open_app(settings) as app:
        rehearse(app, topic, KAFKA, watcher, max_bytes=1 << 30, keep=keep)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("topic", "error", "says"),
    [
        ("nope", UnknownTopicError, "no log directory holds a readable partition of topic nope"),
        ("order*", SettingError, r"not the name of a topic: 'order\*'"),
        ("../orders", SettingError, "not the name of a topic"),
        ("state-compacted", RehearsalError, "compacted topic"),
        ("__consumer_offsets", RehearsalError, "internal topic"),
        ("never-written", RehearsalError, "nothing to hand over"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_before_anything_is_made(
    settings: TieringSettings,
    scratch: Path,
    messages: list[str],
    topic: str,
    error: type[TieringError],
    says: str,
    keep: bool,
) -> None:
    with pytest.raises(error, match=says):
        attempt(settings, topic, messages, keep=keep)
    assert (list(scratch.iterdir()), messages) == ([], [])


def test_without_topic_metadata_the_database_is_not_asked(tmp_path: Path, messages: list[str]) -> None:
    """Nor made: a rehearsal may be the first thing that somebody does."""
    alone = copy_of("public", tmp_path, part=f"{STOPPED}/broker-2")
    shutil.rmtree(alone / "__cluster_metadata-0")
    without_metadata = load_settings(
        overrides={
            "log_dirs": [{"broker_id": 2, "path": str(alone)}],
            "metadata.url": f"sqlite:///{tmp_path / 'platform' / 'tiering.db'}",
        },
        environ={},
    )
    with pytest.raises(UnknownTopicError):
        attempt(without_metadata, "nope", messages)
    assert not (tmp_path / "platform").exists()


def test_a_full_disk_is_noticed_before_anything_is_copied(
    settings: TieringSettings, scratch: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(scratch)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RehearsalSpaceError, match=f"{scratch} has 1000 B free, a rehearsal of 329.8 KiB needs"):
        attempt(settings, "orders", messages)
    assert list(scratch.iterdir()) == []


def test_nothing_is_made_in_a_brokers_directory(
    settings: TieringSettings, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = settings.log_dirs[0].path / "orders-0"
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    with pytest.raises(SettingError, match="TMPDIR is in the log directory"):
        attempt(settings, "orders", messages)


@pytest.mark.parametrize("keep", [False, True])
def test_a_broker_that_does_not_start_leaves_nothing_unless_asked_to(
    settings: TieringSettings,
    tmp_path: Path,
    scratch: Path,
    messages: list[str],
    monkeypatch: pytest.MonkeyPatch,
    keep: bool,
) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\n[ -d data ] && exit 1\nmkdir data; touch data/bootstrap.checkpoint\n")
    program.chmod(0o755)
    monkeypatch.setattr("include.tiering.broker_process.broker_process.java", lambda: str(program))
    before = _seen(settings)
    with pytest.raises(BrokerProcessError, match="broker 1 did not start"):
        attempt(settings, "orders", messages, keep=keep)
    assert "329.8 KiB of 3 partitions are copied into" in messages[0]
    assert len(list(scratch.iterdir())) == keep
    assert _seen(settings) == before
    assert not (tmp_path / "platform").exists()
    assert not (tmp_path / "remote").exists()


def test_the_rehearsals_platform_knows_nothing_but_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tiering.toml"
    config.write_text('remote_storage.url = "s3://real/bucket"\nmetadata_topic.bootstrap_servers = "real:9092"')
    monkeypatch.setenv("TIERING_CONFIG", str(config))
    monkeypatch.setenv("TIERING_METADATA__URL", "postgresql+psycopg://real/database")
    monkeypatch.setenv("TIERING_CLUSTER__BOOTSTRAP_SERVERS", "real:9092")
    root = tmp_path / "a directory"
    process = BrokerProcess(1, root / "broker", root / "broker" / "data", 20_001, "jars", "", tiering=True)
    made = settings_of(ThrowAwayBroker(root, process), "orders", reads_leaders=False)
    assert made.cluster.bootstrap_servers == "127.0.0.1:20001"
    assert made.metadata_topic.bootstrap_servers is None
    assert made.metadata.url.get_secret_value() == f"sqlite:///{root}/platform/metadata.sqlite"
    assert made.remote_storage.url == f"file://{tmp_path}/a%20directory/remote"
    assert [(one.broker_id, one.path) for one in made.log_dirs] == [(1, process.log_dir)]
    fetching = settings_of(ThrowAwayBroker(root, process), "orders", reads_leaders=True)
    assert (fetching.log_dirs, fetching.leaders.spool_directory) == ((), f"{root}/platform")
    for each in (made, fetching):
        others = {name for name in ("real", "s3:", "postgresql") if name in str(to_environment(each).values())}
        assert others == set()


def _seen(settings: TieringSettings) -> dict[str, tuple[int, int]]:
    found = {}
    for log_dir in settings.log_dirs:
        for directory, _, files in os.walk(log_dir.path):
            for path in (Path(directory), *(Path(directory, name) for name in files)):
                found[str(path)] = (path.lstat().st_size, path.lstat().st_mtime_ns)
    return found


# Without log directories, the newest part of the leaders' logs.


@pytest.mark.parametrize(
    ("topic", "configs", "error", "says"),
    [
        ("nope", {}, UnknownTopicError, "the cluster has no topic nope"),
        ("order*", {}, SettingError, r"not the name of a topic: 'order\*'"),
        ("orders", {"cleanup.policy": "compact"}, RehearsalError, "compacted topic"),
        ("orders", {"remote.storage.enable": "true"}, RehearsalError, "segment at offset"),
        ("orders", {"segment.bytes": str(1 << 30)}, RehearsalError, "nothing to hand over"),
    ],
)
def test_what_leaders_have_and_cannot_be_rehearsed_is_refused(
    tmp_path: Path,
    scratch: Path,
    messages: list[str],
    topic: str,
    configs: dict[str, str],
    error: type[TieringError],
    says: str,
) -> None:
    leaders = Leaders(tmp_path)
    leaders.brokers.alter_topic_configs("orders", configs)
    watcher = Watcher(messages.append, lambda _: None, _uncounted)
    with leaders.opened() as app, pytest.raises(error, match=says):
        rehearse(app, topic, KAFKA, watcher, max_bytes=1 << 30)
    assert list(scratch.iterdir()) == []


def test_the_directory_is_named_before_leaders_are_read(tmp_path: Path, scratch: Path, messages: list[str]) -> None:
    """After kill -9 a person has to remove it, also if the leaders were still being read."""
    leaders = Leaders(tmp_path)
    named: list[tuple[str, list[bool], int]] = []

    @contextmanager
    def counting(activity: str, _bytes: int) -> Iterator[Callable[[int], None]]:
        (directory,) = scratch.iterdir()
        named.append((activity, [message.endswith(str(directory)) for message in messages], len(leaders.logs.reads)))
        yield lambda _: None

    leaders.brokers.alter_topic_configs("orders", {"segment.bytes": str(1 << 30)})
    with leaders.opened() as app, pytest.raises(RehearsalError, match="nothing to hand over"):
        rehearse(app, "orders", KAFKA, Watcher(messages.append, lambda _: None, counting), max_bytes=1 << 30)
    assert named == [("fetching", [True], 0)]


def test_leaders_that_have_more_than_the_disk_are_not_read(
    tmp_path: Path, scratch: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = Leaders(tmp_path)
    usage = shutil.disk_usage(scratch)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    watcher = Watcher(messages.append, lambda _: None, _uncounted)
    with leaders.opened() as app, pytest.raises(RehearsalSpaceError, match="has 1000 B free"):
        rehearse(app, "orders", KAFKA, watcher, max_bytes=1 << 30)
    assert (list(scratch.iterdir()), leaders.logs.reads) == ([], [])
