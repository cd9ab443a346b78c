"""Parts of objects that are kept on this host: what is on the disk is checked, bounded, and shared by processes."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from include.tiering.remote_storage.object_cache import ObjectCache
from include.tiering.units import KIB
from tests.doubles.stored_log import some_bytes

KEY: Final = "orders-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAA.indexes"
CONTENT: Final = some_bytes(300)


class Store:
    """Counts how often it is asked."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.asked = 0

    def __call__(self) -> bytes:
        self.asked += 1
        return self.content


def entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith("partial-"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "here"


@pytest.fixture
def entry(directory: Path) -> Path:
    """One that another process wrote."""
    ObjectCache(directory, "a store").read(KEY, 0, 299, Store())
    (path,) = entries(directory)
    return path


def test_a_part_is_read_once_by_all_processes(directory: Path) -> None:
    store, cache = Store(), ObjectCache(directory, "a store")
    assert [cache.read(KEY, 0, 299, store) for _ in range(3)] == [CONTENT] * 3
    assert ObjectCache(directory, "a store").read(KEY, 0, 299, store) == CONTENT
    assert store.asked == 1


def test_without_a_directory_a_part_is_read_once_by_a_process() -> None:
    store, cache = Store(), ObjectCache(None, "a store")
    assert [cache.read(KEY, 0, None, store) for _ in range(3)] == [CONTENT] * 3
    assert store.asked == 1
    cache.forget([KEY])
    cache.read(KEY, 0, None, store)
    assert store.asked == 2


@pytest.mark.parametrize(
    ("place", "key", "first", "last"),
    [
        ("another store", KEY, 0, 299),
        ("a store", KEY.replace("indexes", "log"), 0, 299),
        ("a store", KEY, 1, 299),
        ("a store", KEY, 0, None),
    ],
)
def test_every_other_part_is_another_one(entry: Path, place: str, key: str, first: int, last: int | None) -> None:
    other = Store(b"another")
    assert ObjectCache(entry.parent, place).read(key, first, last, other) == b"another"
    assert ObjectCache(entry.parent, "a store").read(KEY, 0, 299, other) == CONTENT
    assert other.asked == 1


def test_names_of_files_are_made_of_no_key(directory: Path) -> None:
    ObjectCache(directory, "a store").read("../../outside", 0, None, Store())
    (path,) = entries(directory)
    assert path.parent == directory
    assert path.name.partition(".")[0].isalnum()
    assert list(directory.parent.parent.iterdir()) == [directory.parent]


def damaged(stored: bytes) -> dict[str, bytes]:
    flipped = {
        f"bit of byte {at}": stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :] for at in range(len(stored))
    }
    cut = {f"cut at {at}": stored[:at] for at in range(len(stored))}
    return flipped | cut | {"longer": stored + b"\0", "nothing but zeros": bytes(len(stored))}


def test_whatever_is_damaged_is_read_again_and_replaced(entry: Path) -> None:
    stored = entry.read_bytes()
    for what, content in damaged(stored).items():
        entry.write_bytes(content)
        store = Store()
        assert ObjectCache(entry.parent, "a store").read(KEY, 0, 299, store) == CONTENT, what
        assert (store.asked, entry.read_bytes()) == (1, stored), what


def test_an_entry_under_the_name_of_another_is_not_taken(entry: Path) -> None:
    ObjectCache(entry.parent, "a store").read(KEY, 0, 99, Store(CONTENT[:100]))
    (other,) = (path for path in entries(entry.parent) if path != entry)
    other.write_bytes(entry.read_bytes())
    store = Store(CONTENT[:100])
    assert ObjectCache(entry.parent, "a store").read(KEY, 0, 99, store) == CONTENT[:100]
    assert store.asked == 1


def test_what_cannot_be_right_is_forgotten_here_and_on_the_disk(entry: Path) -> None:
    cache, store = ObjectCache(entry.parent, "a store"), Store()
    cache.read(KEY, 0, None, store)
    assert cache.forget([KEY])
    assert not entries(entry.parent)
    assert not cache.forget([KEY])
    cache.read(KEY, 0, 299, store)
    assert store.asked == 2


def test_the_directory_stays_within_its_bound_and_keeps_what_is_used(directory: Path) -> None:
    bound = 256 * KIB
    for number in range(200):
        cache = ObjectCache(directory, "a store", bound)  # A process each: none knows what the others wrote.
        cache.read(f"key-{number}", 0, None, Store(some_bytes(4 * KIB, str(number))))
        assert sum(path.stat().st_size for path in directory.iterdir()) <= bound
        used = Store(some_bytes(4 * KIB, "0"))
        assert cache.read("key-0", 0, None, used) == used.content
        for at, path in enumerate(sorted(entries(directory), key=lambda each: each.stat().st_mtime_ns)):
            os.utime(path, (at, at))  # One that is used later is newer, however coarse the clock of the disk is.
        assert number == 0 or used.asked == 0
    assert 40 < len(entries(directory)) < 64


def test_one_process_stays_within_the_bound(directory: Path) -> None:
    cache = ObjectCache(directory, "a store", 256 * KIB)
    for number in range(200):
        cache.read(f"key-{number}", 0, None, Store(some_bytes(4 * KIB, str(number))))
        assert sum(path.stat().st_size for path in directory.iterdir()) <= 256 * KIB


def test_what_is_large_for_the_directory_is_not_kept(directory: Path) -> None:
    store = Store(some_bytes(100 * KIB))
    for _ in range(2):
        assert ObjectCache(directory, "a store", 256 * KIB).read(KEY, 0, None, store) == store.content
    assert store.asked == 2


def test_what_a_killed_process_left_is_removed_later(entry: Path) -> None:
    left, new = entry.parent / "partial-left", entry.parent / "partial-new"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    new.write_bytes(b"half")
    ObjectCache(entry.parent, "a store").read("another", 0, None, Store())
    assert (left.exists(), new.exists(), entry.exists()) == (False, True, True)


@pytest.mark.parametrize("what", ["a file", "below a file"])
def test_a_directory_that_cannot_be_written_fails_no_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "taken"
    path.write_text("a file")
    store, cache = Store(), ObjectCache(path if what == "a file" else path / "below", "a store")
    assert cache.read(KEY, 0, None, store) == cache.read(KEY, 0, None, store) == CONTENT
    assert store.asked == 1


def test_a_directory_that_another_thread_gives_up_fails_no_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there at the first look, and not at the next one."""
    looks = iter([directory])
    changing = property(lambda _: next(looks, None), lambda *_: None)
    monkeypatch.setattr(ObjectCache, "_directory", changing, raising=False)
    assert ObjectCache(directory, "a store").read(KEY, 0, None, Store()) == CONTENT


def test_many_at_once_get_what_they_asked_for(directory: Path) -> None:
    """Few entries fit, so that some are removed while others read them."""
    contents = {f"key-{number}": some_bytes(3 * KIB, str(number)) for number in range(30)}

    def read_all(start: int) -> bool:
        cache = ObjectCache(directory, "a store", 128 * KIB)
        keys = [*contents][start:] + [*contents][:start]
        return all(cache.read(key, 0, None, Store(contents[key])) == contents[key] for key in keys * 5)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read_all, range(0, 30, 4)))
