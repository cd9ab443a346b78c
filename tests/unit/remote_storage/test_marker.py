"""The marker of a store, and URLs of stores."""

import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Semaphore, Thread, Timer
from types import FrameType
from typing import Any, Final

import pytest

from include.tiering.errors import ForeignStoreError, SettingError
from include.tiering.formats.aiven_manifest import CustomMetadataField, encode_custom_metadata
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.model.segments import IndexType
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import FileLocation, S3Location, StoreAccess, open_storage, parse_location
from include.tiering.remote_storage.segment_storage import (
    COPY_TRUST_SECONDS,
    GuardedStorage,
    SegmentStorage,
    SharedCheck,
)
from include.tiering.remote_storage.store_ownership import (
    MARKER_KEY,
    MAX_MARKER_BYTES,
    marker_from_bytes,
    marker_to_bytes,
)
from tests.doubles.generations import always
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.storage_backdoor import DirectoryBackdoor
from tests.doubles.stored_log import some_segment

# The marker, and the gate that asks it.

MARKER = StoreMarker("7ZtY2gLkQ0mV3c1f6b8d9A", "store-1", 3)
PLACE = StorePlace("s3://bucket/prefix", "aiven", "tiered/")
RAISED = replace(MARKER, token="AAAA", place=PLACE, raised_by=RaisedBy("host", "sqlite:///tiering.db", 5))
METADATA, DATA = some_segment(1000)


@pytest.fixture
def storage(tmp_path: Path) -> SegmentStorage:
    return SegmentStorage(FileObjectStore(tmp_path), AivenLayout())


def copy(storage: RemoteStorage) -> None:
    storage.copy_log_segment(METADATA, DATA, limiter=UnlimitedBytes(), on_sent=lambda _: None)


class CountingStore(FileObjectStore):
    """Counts the reads of each key."""

    def __init__(self, root: Path, reads: Counter[str]) -> None:
        super().__init__(root)
        self._reads = reads

    def read(self, key: str, *args: Any, **options: Any) -> Iterator[bytes]:
        self._reads[key] += 1
        return super().read(key, *args, **options)


def test_a_marker_is_readable_json_and_round_trips() -> None:
    content = marker_to_bytes(MARKER)
    assert json.loads(content) == {
        "version": 1,
        "cluster_id": "7ZtY2gLkQ0mV3c1f6b8d9A",
        "store_id": "store-1",
        "generation": 3,
    }
    assert marker_from_bytes(content) == MARKER


def test_a_marker_says_where_keys_lie_and_who_raised_it() -> None:
    content = marker_to_bytes(RAISED)
    assert json.loads(content) == {
        "version": 2,
        "cluster_id": "7ZtY2gLkQ0mV3c1f6b8d9A",
        "store_id": "store-1",
        "generation": 3,
        "token": "AAAA",
        "url": "s3://bucket/prefix",
        "layout": "aiven",
        "key_prefix": "tiered/",
        "raised_by": {"host": "host", "database": "sqlite:///tiering.db", "at_ms": 5},
    }
    found = marker_from_bytes(content)
    assert (found, found.place, found.raised_by) == (RAISED, RAISED.place, RAISED.raised_by)
    assert found != MARKER
    assert found == replace(RAISED, place=None, raised_by=None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        marker_to_bytes(MARKER).replace(b'"version": 1', b'"version": 2'),
        marker_to_bytes(MARKER).replace(b'"version": 1', b'"version": 3'),
        marker_to_bytes(RAISED).replace(b'"layout"', b'"other"'),
        marker_to_bytes(RAISED).replace(b'"at_ms": 5', b'"at_ms": 253402300799001'),
        marker_to_bytes(MARKER).replace(b"3\n", b"-1\n"),
        marker_to_bytes(MARKER).replace(b"3\n", b"2147483647\n"),
        marker_to_bytes(MARKER).replace(b"3\n", b"true\n"),
        b" " * (MAX_MARKER_BYTES + 1),
    ],
)
def test_a_marker_that_cannot_be_understood_is_foreign(content: bytes) -> None:
    with pytest.raises(ForeignStoreError, match=MARKER_KEY):
        marker_from_bytes(content)


@pytest.mark.parametrize("other", [StoreMarker("c", "store-1", 3), StoreMarker(MARKER.cluster_id, "store-1", 4)])
def test_nothing_is_changed_in_somebody_elses_store(
    storage: SegmentStorage, tmp_path: Path, other: StoreMarker
) -> None:
    storage.create_marker(other)
    copy(storage)
    before = DirectoryBackdoor(tmp_path).raw_keys()
    guarded = storage.guarded(always(MARKER), ManualClock())
    with pytest.raises(ForeignStoreError, match="store-1"):
        copy(guarded)
    with pytest.raises(ForeignStoreError):
        guarded.delete_log_segments([METADATA])
    with pytest.raises(ForeignStoreError):
        guarded.check_writable()
    assert DirectoryBackdoor(tmp_path).raw_keys() == before
    assert guarded.read_marker() == other


def test_a_store_without_a_marker_is_not_written_to(storage: SegmentStorage, tmp_path: Path) -> None:
    with pytest.raises(ForeignStoreError, match="mounted"):
        copy(storage.guarded(always(MARKER), ManualClock()))
    assert DirectoryBackdoor(tmp_path).raw_keys() == set()


def test_a_store_that_changes_hands_is_noticed(storage: SegmentStorage, tmp_path: Path) -> None:
    storage.create_marker(MARKER)
    guarded = storage.guarded(always(MARKER), ManualClock())
    copy(guarded)
    (tmp_path / MARKER_KEY).write_bytes(marker_to_bytes(StoreMarker("another", "store-2", 0)))
    with pytest.raises(ForeignStoreError):
        guarded.delete_log_segments([METADATA])
    assert len(storage.stat_log_segment(METADATA)) == 3


def test_a_marker_that_changes_hands_stops_copies_within_a_second_and_deletes_at_once(
    storage: SegmentStorage, tmp_path: Path
) -> None:
    clock = ManualClock()
    storage.create_marker(MARKER)
    guarded = storage.guarded(always(MARKER), clock)
    copy(guarded)
    other = StoreMarker(MARKER.cluster_id, MARKER.store_id, MARKER.generation + 1)
    (tmp_path / MARKER_KEY).write_bytes(marker_to_bytes(other))
    with pytest.raises(ForeignStoreError):
        guarded.delete_log_segments([METADATA])
    clock.advance(COPY_TRUST_SECONDS)
    with pytest.raises(ForeignStoreError):
        copy(guarded)


def test_a_check_that_refused_the_marker_stops_the_next_copy(storage: SegmentStorage) -> None:
    """A database may be behind for one partition's check and not for the one before."""
    storage.create_marker(MARKER)
    accepted = [always(MARKER)]
    guarded = storage.guarded(lambda: accepted[0](), ManualClock())
    guarded.check_marker()
    accepted[0] = always(StoreMarker(MARKER.cluster_id, MARKER.store_id, MARKER.generation + 7))
    with pytest.raises(ForeignStoreError):
        guarded.check_marker()
    with pytest.raises(ForeignStoreError):
        copy(guarded)
    accepted[0] = always(MARKER)
    copy(guarded)


def test_a_marker_is_read_without_trust_where_it_is_checked_and_renews_the_trust(
    storage: SegmentStorage, tmp_path: Path
) -> None:
    """What a copy of many small segments pays: one read for each."""
    clock, reads = ManualClock(), Counter[str]()
    storage.create_marker(MARKER)
    guarded = GuardedStorage(CountingStore(tmp_path, reads), AivenLayout(), always(MARKER), clock)
    copy(guarded)
    for _ in range(3):
        clock.advance(COPY_TRUST_SECONDS / 2)
        guarded.check_marker()
        storage.delete_log_segments([METADATA])
        clock.advance(COPY_TRUST_SECONDS / 2)
        copy(guarded)
    assert reads[MARKER_KEY] == 1 + 3
    (tmp_path / MARKER_KEY).unlink()
    with pytest.raises(ForeignStoreError, match="mounted"):
        guarded.check_marker()


class HeldStore(CountingStore):
    """Returns what it has read only when it may."""

    def __init__(self, root: Path, reads: Counter[str]) -> None:
        super().__init__(root, reads)
        self.has_read, self.may_return = Semaphore(0), Semaphore(0)

    def read(self, key: str, *args: Any, **options: Any) -> Iterator[bytes]:
        found = list(super().read(key, *args, **options))
        self.has_read.release()
        assert self.may_return.acquire(timeout=PATIENCE_SECONDS)
        return iter(found)


def test_checks_that_begin_during_another_one_share_the_next_and_not_that_one(
    storage: SegmentStorage, tmp_path: Path
) -> None:
    """The first has read the marker before another database took the store over, the three others begin after that."""
    reads = Counter[str]()
    storage.create_marker(MARKER)
    store = HeldStore(tmp_path, reads)
    guarded = GuardedStorage(store, AivenLayout(), always(MARKER), ManualClock())
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(guarded.check_marker)
        assert store.has_read.acquire(timeout=PATIENCE_SECONDS)
        (tmp_path / MARKER_KEY).write_bytes(marker_to_bytes(StoreMarker("another", "store-2", 0)))
        others = [threads.submit(guarded.check_marker) for _ in range(3)]
        eventually(lambda: _threads_that_joined() == 2, "one thread is to check, two have joined it")
        store.may_return.release(10)
        first.result()
        for other in others:
            with pytest.raises(ForeignStoreError):
                other.result()
    assert reads[MARKER_KEY] == 1 + 2  # a marker that is refused is read twice


def test_a_signal_that_ends_the_wait_for_a_run_leaves_no_later_check_waiting() -> None:
    """As Airflow ends a task: its main thread waits for the run of another thread, and gets an exception."""
    has_begun, may_end = Event(), Event()

    def run() -> None:
        has_begun.set()
        assert may_end.wait(PATIENCE_SECONDS)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    check = partial(SharedCheck(), run)

    def complete() -> None:
        while not check():
            pass

    first, joins, later = (Thread(target=complete, daemon=True) for _ in range(3))
    timers = Timer(0.1, joins.start), Timer(0.4, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        first.start()
        assert has_begun.wait(PATIENCE_SECONDS)
        for timer in timers:
            timer.start()
        with pytest.raises(KeyboardInterrupt):
            check()
    finally:
        signal.signal(signal.SIGUSR1, before)
        may_end.set()
    later.start()
    for thread in (first, *timers, joins, later):
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def _threads_that_joined() -> int:
    return sum(map(_has_joined, sys._current_frames().values()))


def _has_joined(innermost: FrameType) -> bool:
    """Whether a thread waits for the result of a check that another thread makes."""
    names, frame = set[str](), innermost
    while frame.f_back is not None and frame.f_code is not SharedCheck.__call__.__code__:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return frame.f_code is SharedCheck.__call__.__code__ and "wait" in names and "_check_marker" not in names


CHANGES: Final = {
    "copy_log_segment": lambda storage: copy(storage),
    "delete_log_segments": lambda storage: storage.delete_log_segments([METADATA]),
    "check_writable": lambda storage: storage.check_writable(),
}
OF_THE_MARKER: Final = {"create_marker", "replace_marker", "replaces_conditionally"}
"""They compare with what they find themselves; the last writes and removes an object of its own."""
READS: Final = {
    "required_kinds": lambda storage: storage.required_kinds,
    "reading_costs": lambda storage: storage.reading_costs,
    "slow_downs": lambda storage: storage.slow_downs,
    "require_copyable": lambda storage: storage.require_copyable(METADATA),
    "custom_metadata": lambda storage: storage.custom_metadata(METADATA, 1000),
    "stat_log_segment": lambda storage: storage.stat_log_segment(METADATA),
    "fetch_log_segment": lambda storage: b"".join(storage.fetch_log_segment(METADATA, limiter=UnlimitedBytes())),
    "fetch_index": lambda storage: storage.fetch_index(METADATA, IndexType.OFFSET),
    "fetch_manifest": lambda storage: storage.fetch_manifest(METADATA),
    "open_log_segment": lambda storage: storage.open_log_segment(METADATA, limiter=UnlimitedBytes()).manifest(),
    "open_log_parts": lambda storage: list(storage.open_log_parts(METADATA, 0, 0).read(0, limiter=UnlimitedBytes())),
    "forget": lambda storage: storage.forget(METADATA),
    "list_objects": lambda storage: list(storage.list_objects()),
    "list_segment_objects": lambda storage: list(storage.list_segment_objects()),
    "segment_object": lambda storage: storage.segment_object("no segment's", 1),
    "read_marker": lambda storage: storage.read_marker(),
    "clock_ms": lambda storage: storage.clock_ms(),
}


class UnchangingStore(FileObjectStore):
    """Fails the test that lets it be changed."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise AssertionError("the store was changed")

    put = replace = delete = delete_versions = abort_upload = _refuse


def test_each_call_of_a_storage_either_asks_the_marker_or_changes_nothing(
    storage: SegmentStorage, tmp_path: Path
) -> None:
    """Whoever adds a call to the contract says here which of both it is."""
    calls = {name for name in vars(RemoteStorage) if not name.startswith("_")}
    assert calls == CHANGES.keys() | OF_THE_MARKER | READS.keys() | {"check_marker"}
    storage.create_marker(StoreMarker("another", "store-2", 0))
    copy(storage)
    guarded = GuardedStorage(UnchangingStore(tmp_path), AivenLayout(), always(MARKER), ManualClock())
    for change in CHANGES.values():
        with pytest.raises(ForeignStoreError):
            change(guarded)
    for read in READS.values():
        read(guarded)


# URLs name a place and nothing else.


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///srv/tiered", FileLocation(Path("/srv/tiered"))),
        ("file:///srv/tiered/", FileLocation(Path("/srv/tiered"))),
        ("file://localhost/srv", FileLocation(Path("/srv"))),
        ("file:///srv/with%20space", FileLocation(Path("/srv/with space"))),
        ("s3://bucket-1", S3Location("bucket-1", "")),
        ("s3://bucket-1/", S3Location("bucket-1", "")),
        ("s3://bucket.name/a/b", S3Location("bucket.name", "a/b/")),
        ("s3://bucket-1/a/b/", S3Location("bucket-1", "a/b/")),
    ],
)
def test_accepted(url: str, location: FileLocation | S3Location) -> None:
    assert parse_location(url) == location


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/tiered",
        "http://bucket/x",
        "s3:/bucket",
        "file:srv",
        "file://host/srv",
        "file://srv",
        "file:///",
        "file:///..",
        "file:///srv/../etc",
        "file:///srv/%2e%2e/etc",
        "file:///srv/%00",
        "file:///srv?x=1",
        "file:///srv#x",
        "s3://",
        "s3:///prefix",
        "s3://B",
        "s3://Bucket-Name",
        "s3://bucket-1/a/../b",
        "s3://bucket-1/a//b",
        "s3://bucket-1/./a",
        "s3://bucket-1/a b",
        "s3://bucket-1/a%2Fb",
        "s3://bucket-1/a?versionId=1",
        "s3://bucket-1/" + "a" * 600,
        "s3://[bucket",
    ],
)
def test_refused(url: str) -> None:
    with pytest.raises(SettingError, match=r"remote_storage\.url"):
        parse_location(url)


@pytest.mark.parametrize("url", ["s3://AKIAKEY:s3cr3t@bucket-1/p", "s3://s3cr3t@bucket-1", "file://s3cr3t@host/x"])
def test_credentials_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_location(url)
    assert "s3cr3t" not in str(raised.value)
    assert "AKIAKEY" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "brokers_prefix"),
    [
        ("file:///srv/tiered", "kafka-"),
        ("s3://bucket-1", "kafka-"),
        ("s3://bucket-1/a/b", "a/b/kafka-"),
    ],
)
def test_brokers_are_told_the_prefix_of_the_bucket_and_of_the_keys(url: str, brokers_prefix: str) -> None:
    """A directory is the root of the brokers' storage as well, so it is no part of their `key.prefix`."""
    form = AivenForm(custom_metadata=frozenset({CustomMetadataField.OBJECT_PREFIX}), key_prefix="kafka-")
    storage = open_storage(url, StoreAccess(region="eu-west-1"), form=form)
    told = encode_custom_metadata({CustomMetadataField.OBJECT_PREFIX: brokers_prefix})
    assert storage.custom_metadata(METADATA, 1000) == told


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_storage((tmp_path / "absent").as_uri())
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="aiven"):
        open_storage(tmp_path.as_uri(), layout="other")


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"region": "us east"}, {}),
        ({"endpoint_url": "http://a b:1"}, {}),
        ({}, {"AWS_PROFILE": "nobody-has-this-one"}),
    ],
)
def test_what_the_sdk_refuses_is_a_setting(
    options: dict[str, Any], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match="AWS_PROFILE"):
        open_storage("s3://bucket-1/p", StoreAccess(**options))


@pytest.mark.parametrize("endpoint", ["ftp://host", "host:7070", "http://", "http://user:s3cr3t@host:7070"])
def test_an_unusable_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingError, match="endpoint_url") as raised:
        open_storage("s3://bucket-1/p", StoreAccess(endpoint))
    assert "s3cr3t" not in str(raised.value)
