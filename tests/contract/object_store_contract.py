"""What every `ObjectStore` must do. A subclass gives fixtures `store` and `backdoor`."""

import threading
import time

import pytest

from include.tiering.errors import (
    ObjectKeyError,
    RemoteChecksumError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    SendingStoppedError,
    SourceChangedError,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import BLOCK_BYTES, BytesSource, ObjectStat, ObjectStore, crc32c_of
from tests.doubles.memory_source import ShrinkingSource
from tests.doubles.storage_backdoor import Backdoor
from tests.doubles.stored_log import CountingLimiter, some_bytes

KEY = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000000000-__79_Pv6-fj39vX08_Lx8A.log"
HOSTILE_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../outside",
    "a/../../outside",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "a\0b",
    "a\nb",
    "a b",
    "ключ",
    "a/b.log.~0123456789abcdef",
    "a" * 2000,
]


def put(store: ObjectStore, key: str, content: bytes) -> None:
    store.put(key, BytesSource(content), crc32c_of(content), limiter=UnlimitedBytes(), on_sent=lambda _: None)


def read(store: ObjectStore, key: str, first: int = 0, last: int | None = None) -> bytes:
    return b"".join(store.read(key, first, last, limiter=UnlimitedBytes()))


class ObjectStoreContract:
    """`computes_checksums` False: the server takes any checksum and returns none (a double of control flow only).
    `confirms_writes`: its answer to a write in one request names the checksum that it computed.
    """

    computes_checksums = True
    confirms_writes = False

    @pytest.mark.parametrize("size_bytes", [0, 1, 1000, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
    def test_an_object_holds_exactly_the_bytes_sent(
        self, store: ObjectStore, backdoor: Backdoor, size_bytes: int
    ) -> None:
        content = some_bytes(size_bytes)
        put(store, KEY, content)
        assert backdoor.raw_keys() == {KEY}
        assert backdoor.raw_read(KEY) == content
        assert read(store, KEY) == content

    def test_stat_tells_what_is_on_the_medium_not_what_was_sent(self, store: ObjectStore, backdoor: Backdoor) -> None:
        put(store, KEY, b"what was sent")
        if self.computes_checksums:
            assert store.stat(KEY) == ObjectStat(13, crc32c_of(b"what was sent"))
        else:
            assert store.stat(KEY) == ObjectStat(13, None)
        assert store.stat(KEY + ".other") is None
        assert store.stat("elsewhere/" + KEY) is None

    def test_a_look_tells_size_and_time_of_what_is_there(self, store: ObjectStore, backdoor: Backdoor) -> None:
        earliest_ms = (time.time_ns() // 1_000_000_000) * 1000
        put(store, KEY, b"what was sent")
        seen = store.head(KEY)
        assert seen is not None
        assert (seen.size_bytes, seen.version_id) == (13, None)
        assert earliest_ms - 1000 <= seen.last_modified_ms <= time.time_ns() // 1_000_000 + 1000
        assert store.head(KEY + ".other") is None
        assert store.head("elsewhere/" + KEY) is None

    def test_a_write_is_confirmed_by_the_store_alone(self, store: ObjectStore) -> None:
        content = some_bytes(BLOCK_BYTES + 1)
        confirmed = store.put(
            KEY, BytesSource(content), crc32c_of(content), limiter=UnlimitedBytes(), on_sent=lambda _: None
        )
        assert confirmed is self.confirms_writes

    def test_a_record_of_the_store_itself_is_replaced_whole(self, store: ObjectStore, backdoor: Backdoor) -> None:
        for content in (b"first", b"the second is longer", b""):
            store.replace("record.json", content)
            assert backdoor.raw_keys() == {"record.json"}
            assert backdoor.raw_read("record.json") == content
        for key in HOSTILE_KEYS:
            with pytest.raises(ObjectKeyError):
                store.replace(key, b"content")

    def test_a_record_is_replaced_if_it_is_the_expected_version(self, store: ObjectStore, backdoor: Backdoor) -> None:
        assert store.read_version("record.json", 100) is None
        assert not store.replace("record.json", b"other", version="none")
        assert backdoor.raw_keys() == set()
        store.replace("record.json", b"first")
        content, first = store.read_version("record.json", 100) or (b"", "")
        assert content == b"first"
        assert store.replace("record.json", b"second", version=first)
        assert not store.replace("record.json", b"third", version=first)
        content, second = store.read_version("record.json", 100) or (b"", "")
        assert (content, backdoor.raw_read("record.json")) == (b"second", b"second")
        assert first != second
        assert backdoor.raw_keys() == {"record.json"}
        assert list(store.list_open_uploads()) == []
        with pytest.raises(RemoteStorageError, match=r"record\.json: more than 5 bytes"):
            store.read_version("record.json", 5)

    def test_of_many_that_replace_the_same_version_one_wins(self, store: ObjectStore, backdoor: Backdoor) -> None:
        store.replace("record.json", b"first")
        _, version = store.read_version("record.json", 100) or (b"", "")
        won: list[bytes] = []

        def replace(content: bytes) -> None:
            if store.replace("record.json", content, version=version):
                won.append(content)

        writers = [threading.Thread(target=replace, args=(b"by %d" % number,)) for number in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [backdoor.raw_read("record.json")] == won
        assert backdoor.raw_keys() == {"record.json"}

    def test_whether_a_version_is_heeded_is_found_out(self, store: ObjectStore, backdoor: Backdoor) -> None:
        assert store.replaces_conditionally("scratch")
        assert backdoor.raw_keys() == set()
        assert list(store.list_open_uploads()) == []

    def test_an_object_is_never_overwritten(self, store: ObjectStore, backdoor: Backdoor) -> None:
        put(store, KEY, b"first")
        for content in (b"other", b"first"):
            with pytest.raises(RemoteObjectExistsError, match=r"00000000000000000000"):
                put(store, KEY, content)
        assert backdoor.raw_read(KEY) == b"first"
        assert backdoor.raw_keys() == {KEY}
        assert list(store.list_open_uploads()) == []

    def test_of_many_writers_of_one_key_one_wins(self, store: ObjectStore, backdoor: Backdoor) -> None:
        contents = [some_bytes(70_000, str(writer)) for writer in range(8)]
        outcomes: list[bytes | Exception] = []

        def write(content: bytes) -> None:
            try:
                put(store, KEY, content)
                outcomes.append(content)
            except RemoteObjectExistsError as error:
                outcomes.append(error)

        writers = [threading.Thread(target=write, args=(content,)) for content in contents]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        winners = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
        assert len(outcomes) == 8
        assert len(winners) == 1
        assert backdoor.raw_read(KEY) == winners[0]
        assert backdoor.raw_keys() == {KEY}

    def test_a_wrong_checksum_is_refused(self, store: ObjectStore, backdoor: Backdoor) -> None:
        if not self.computes_checksums:
            pytest.skip("this server takes any checksum")
        with pytest.raises(RemoteChecksumError, match="00000000000000000000"):
            store.put(KEY, BytesSource(b"bytes"), crc32c_of(b"other"), limiter=UnlimitedBytes(), on_sent=lambda _: None)
        assert backdoor.raw_keys() == set()

    def test_every_byte_is_charged_before_and_reported_after(self, store: ObjectStore) -> None:
        limiter = CountingLimiter()
        reported: list[int] = []
        charged_first: list[bool] = []

        def on_sent(size_bytes: int) -> None:
            reported.append(size_bytes)
            charged_first.append(sum(reported) <= limiter.total_bytes)

        content = some_bytes(2 * BLOCK_BYTES + 5)
        store.put(KEY, BytesSource(content), crc32c_of(content), limiter=limiter, on_sent=on_sent)
        assert limiter.total_bytes == sum(reported) == len(content)
        assert all(charged_first)
        fetched = CountingLimiter()
        assert b"".join(store.read(KEY, limiter=fetched)) == content
        assert fetched.total_bytes == len(content)

    def test_a_limiter_that_stops_leaves_nothing(self, store: ObjectStore, backdoor: Backdoor) -> None:
        content = some_bytes(3 * BLOCK_BYTES)
        limiter = CountingLimiter(allowance=2 * BLOCK_BYTES, error=SendingStoppedError("paused"))
        with pytest.raises(SendingStoppedError, match="paused"):
            store.put(KEY, BytesSource(content), crc32c_of(content), limiter=limiter, on_sent=lambda _: None)
        assert limiter.total_bytes == 2 * BLOCK_BYTES
        assert backdoor.raw_keys() == set()
        assert list(store.list_open_uploads()) == []

    def test_a_source_that_shrinks_leaves_nothing(self, store: ObjectStore, backdoor: Backdoor) -> None:
        source = ShrinkingSource(BytesSource(some_bytes(3 * BLOCK_BYTES)), shrunk_bytes=BLOCK_BYTES + 7)
        with pytest.raises(SourceChangedError, match="shrank"):
            store.put(KEY, source, 0, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        assert backdoor.raw_keys() == set()
        assert list(store.list_open_uploads()) == []

    def test_ranges_are_inclusive(self, store: ObjectStore) -> None:
        content = some_bytes(BLOCK_BYTES + 100)
        put(store, KEY, content)
        for first, last in [(0, 0), (5, 9), (BLOCK_BYTES - 1, BLOCK_BYTES), (len(content) - 1, len(content) - 1)]:
            assert read(store, KEY, first, last) == content[first : last + 1]
        assert read(store, KEY, 7) == content[7:]

    def test_a_range_beyond_the_end_is_refused(self, store: ObjectStore) -> None:
        put(store, KEY, b"ten bytes.")
        for first, last in [(0, 10), (10, 10), (10, 11), (50, None)]:
            with pytest.raises(RemoteResourceNotFoundError, match="00000000000000000000"):
                read(store, KEY, first, last)

    def test_reading_what_is_not_there_is_a_typed_error(self, store: ObjectStore) -> None:
        with pytest.raises(RemoteResourceNotFoundError, match="00000000000000000000"):
            read(store, KEY)

    def test_deletes_tolerate_absence_and_spare_others(self, store: ObjectStore, backdoor: Backdoor) -> None:
        for key in ("a/b/1.log", "a/b/2.log", "a/b/12.log"):
            put(store, key, b"x")
        assert store.delete(["a/b/1.log", "a/b/absent", "no/where", "a/b/2.log"]) == ()
        assert store.delete(["a/b/1.log"]) == ()
        assert store.delete([]) == ()
        assert backdoor.raw_keys() == {"a/b/12.log"}

    def test_an_undeletable_key_does_not_keep_the_others(self, store: ObjectStore, backdoor: Backdoor) -> None:
        put(store, "a/b", b"x")
        put(store, "a/c", b"x")
        failures = store.delete(["a/b", "../outside", "a/c"])
        assert [failure.key for failure in failures] == ["../outside"]
        assert not failures[0].retriable
        assert backdoor.raw_keys() == set()

    def test_listing_gives_every_object_with_its_size(self, store: ObjectStore, backdoor: Backdoor) -> None:
        expected = {"a/1": 1, "a/2": 2, "ab/1": 3, "a.b/c/d": 4, "top": 0}
        for key, size_bytes in expected.items():
            put(store, key, bytes(size_bytes))
        backdoor.raw_write("written by/a stranger", b"12345")
        listed = {found.key: found.size_bytes for found in store.list_objects()}
        assert listed == expected | {"written by/a stranger": 5}
        for prefix, keys in {"a/": {"a/1", "a/2"}, "a": {"a/1", "a/2", "ab/1", "a.b/c/d"}, "none/": set()}.items():
            assert {found.key for found in store.list_objects(prefix)} == keys

    def test_an_empty_store_lists_nothing(self, store: ObjectStore) -> None:
        assert list(store.list_objects()) == []
        assert list(store.list_open_uploads()) == []

    @pytest.mark.parametrize("key", HOSTILE_KEYS)
    def test_hostile_keys_are_refused_everywhere(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ObjectKeyError):
            put(store, key, b"x")
        with pytest.raises(ObjectKeyError):
            read(store, key)
        with pytest.raises(ObjectKeyError):
            store.stat(key)
        assert [failure.key for failure in store.delete([key])] == [key]
        if key:
            with pytest.raises(ObjectKeyError):
                list(store.list_objects(key + "/"))

    def test_capacity_is_there(self, store: ObjectStore) -> None:
        store.check_capacity()

    def test_it_says_where_it_is(self, store: ObjectStore) -> None:
        assert "://" in store.describe()
