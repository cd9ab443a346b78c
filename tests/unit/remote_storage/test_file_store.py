"""What is particular to files: links, leftovers of dead writers, full disks, durability."""

import contextlib
import copy
import errno
import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import (
    ForeignStoreError,
    ObjectKeyError,
    RemoteAccessDeniedError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    TieringError,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.file.tree import translated
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import BLOCK_BYTES, BytesSource, OpenUpload, crc32c_of
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.units import GIB, KIB, MIB
from tests.doubles.stored_log import some_bytes, some_segment


def opened_name(fd: int) -> str:
    return Path(f"/proc/self/fd/{fd}").readlink().name.partition(".~")[0]


def put(store: FileObjectStore, key: str, content: bytes = b"content") -> None:
    store.put(key, BytesSource(content), crc32c_of(content), limiter=UnlimitedBytes(), on_sent=lambda _: None)


def read(store: FileObjectStore, key: str) -> bytes:
    return b"".join(store.read(key, limiter=UnlimitedBytes()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> FileObjectStore:
    return FileObjectStore(root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    return outside


class TestLinks:
    def test_the_root_may_be_a_link(self, root: Path, outside: Path) -> None:
        root.symlink_to(outside)
        store = FileObjectStore(root)
        put(store, "a/b")
        assert (outside / "a" / "b").read_bytes() == b"content"

    def test_a_linked_directory_is_never_entered(self, root: Path, outside: Path, store: FileObjectStore) -> None:
        put(store, "real/object")
        (root / "link").symlink_to(outside)
        with pytest.raises(RemoteStorageError, match="link"):
            put(store, "link/new")
        with pytest.raises(RemoteStorageError, match="link"):
            read(store, "link/secret")
        with pytest.raises(RemoteStorageError, match="link"):
            store.stat("link/secret")
        assert [failure.key for failure in store.delete(["link/secret", "real/object"])] == ["link/secret"]
        assert {path.name for path in outside.iterdir()} == {"secret"}
        assert list(store.list_objects()) == []

    def test_a_linked_file_is_never_read_nor_written_through(
        self, root: Path, outside: Path, store: FileObjectStore
    ) -> None:
        put(store, "a/object")
        (root / "a" / "link").symlink_to(outside / "secret")
        (root / "a" / "dangling").symlink_to(outside / "new")
        with pytest.raises(RemoteStorageError, match="link"):
            read(store, "a/link")
        for key in ("a/link", "a/dangling"):
            with pytest.raises(RemoteObjectExistsError):
                put(store, key)
        assert {found.key for found in store.list_objects()} == {"a/object"}
        assert store.delete(["a/link"]) == ()
        assert (outside / "secret").read_bytes() == b"secret"
        assert not (outside / "new").exists()

    def test_what_is_no_regular_file_is_no_object(self, root: Path, store: FileObjectStore) -> None:
        put(store, "a/object")
        os.mkfifo(root / "a" / "fifo")
        for key in ("a/fifo", "a"):
            with pytest.raises(RemoteStorageError, match="regular"):
                read(store, key)
        with pytest.raises(RemoteStorageError):
            put(store, "a/object/below")
        assert {found.key for found in store.list_objects()} == {"a/object"}


class TestDeadWriters:
    """A temporary file is what a killed process leaves."""

    def leave(self, root: Path, key: str, random: str = "0123456789abcdef") -> Path:
        path = root / f"{key}.~{random}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        return path

    def test_it_is_an_open_upload_and_no_object(self, root: Path, store: FileObjectStore) -> None:
        left = self.leave(root, "a/b/object")
        assert list(store.list_objects()) == []
        assert list(store.list_open_uploads()) == [OpenUpload("a/b/object", left.name)]
        assert list(store.list_open_uploads("a/b/")) == [OpenUpload("a/b/object", left.name)]
        assert list(store.list_open_uploads("a/c/")) == []
        assert store.stat("a/b/object") is None

    def test_it_does_not_hinder_the_next_writer(self, root: Path, store: FileObjectStore) -> None:
        left = self.leave(root, "a/object")
        put(store, "a/object")
        assert read(store, "a/object") == b"content"
        assert left.exists()

    def test_aborting_it_twice_is_harmless(self, root: Path, store: FileObjectStore) -> None:
        left = self.leave(root, "a/object")
        (upload,) = store.list_open_uploads()
        store.abort_upload(upload)
        store.abort_upload(upload)
        assert not left.exists()

    @pytest.mark.parametrize("token", ["object", "../../x.~1", "a/x.~1", ""])
    def test_only_temporary_files_are_aborted(self, store: FileObjectStore, token: str) -> None:
        put(store, "a/object")
        with pytest.raises(RemoteStorageError, match="temporary"):
            store.abort_upload(OpenUpload("a/object", token))
        assert read(store, "a/object") == b"content"

    def test_a_delete_of_the_attempt_removes_its_files_and_spares_the_neighbours(
        self, root: Path, store: FileObjectStore
    ) -> None:
        storage = SegmentStorage(store, AivenLayout())
        (mine, data), (other, _) = some_segment(1000, seed="a"), some_segment(1000, seed="b", start_offset=25)
        storage.copy_log_segment(mine, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        for _, key in AivenLayout().keys(mine):
            self.leave(root, key, "1111111111111111")
        spared = self.leave(root, AivenLayout().keys(other)[0][1])
        assert storage.delete_log_segments([mine]) == ()
        assert [path for path in root.rglob("*") if path.is_file()] == [spared]

    def test_a_writer_whose_file_was_taken_away_fails(self, root: Path, store: FileObjectStore) -> None:
        def take_away(_: int) -> None:
            for upload in list(store.list_open_uploads()):
                store.abort_upload(upload)

        with pytest.raises(RemoteStorageError):
            store.put("a/o", BytesSource(b"x"), crc32c_of(b"x"), limiter=UnlimitedBytes(), on_sent=take_away)
        assert list(store.list_objects()) == []


@contextlib.contextmanager
def tiny_file_system(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A real file system of that size, where this user may mount one."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root: run as root to fill a real disk")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


class TestFullDisk:
    def test_a_real_full_disk_is_a_typed_error_and_leaves_nothing(self, tmp_path: Path) -> None:
        with tiny_file_system(tmp_path / "tiny", 512 * KIB) as tiny:
            store = FileObjectStore(tiny)
            put(store, "a/small", some_bytes(100 * KIB))
            with pytest.raises(RemoteStorageFullError, match=r"a/big.*free"):
                put(store, "a/big", some_bytes(2 * MIB))
            assert [path.name for path in (tiny / "a").iterdir()] == ["small"]
            assert store.stat("a/small") is not None
            with pytest.raises(RemoteStorageFullError, match=r"free, 256\.0 MiB needed"):
                store.check_capacity()
            del store

    def test_capacity_is_asked_of_the_file_system(self, root: Path) -> None:
        FileObjectStore(root, min_free_bytes=0).check_capacity()
        with pytest.raises(RemoteStorageFullError, match="needed"):
            FileObjectStore(root, min_free_bytes=2**20 * GIB).check_capacity()

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.ENOSPC, RemoteStorageFullError),
            (errno.EDQUOT, RemoteStorageFullError),
            (errno.EIO, RemoteStorageUnavailableError),
            (errno.ESTALE, RemoteStorageUnavailableError),
            (errno.ENOENT, RemoteResourceNotFoundError),
            (errno.EEXIST, RemoteObjectExistsError),
            (errno.EACCES, RemoteAccessDeniedError),
            (errno.EROFS, RemoteStorageError),
            (errno.EXDEV, RemoteStorageError),
        ],
    )
    def test_every_system_error_has_a_type_and_names_the_object(
        self, root: Path, number: int, kind: type[TieringError]
    ) -> None:
        with (
            pytest.raises(RemoteStorageError, match="cannot write a/key in file://") as raised,
            translated(root, "a/key", "write"),
        ):
            raise OSError(number, os.strerror(number))
        assert type(raised.value) is kind


def test_a_name_that_no_file_system_takes_is_a_key_error(store: FileObjectStore) -> None:
    with pytest.raises(ObjectKeyError, match="length"):
        put(store, "a" * 272 + "/0/x.log")


def test_what_a_writer_did_is_synced_before_it_is_visible(
    root: Path, store: FileObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of calls is the promise: each new directory in its parent, then content, name, directory."""
    calls: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(fd: int) -> None:
        calls.append(f"fsync {opened_name(fd)}")
        real_fsync(fd)

    def link(*args: object, **kwargs: object) -> None:
        calls.append("link")
        real_link(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    put(store, "a/b/one")
    assert calls == [f"fsync {root.parent.name}", "fsync store", "fsync a", "fsync one", "link", "fsync b"]
    calls.clear()
    put(store, "a/b/two")
    assert calls == ["fsync two", "link", "fsync b"]


def test_a_second_writer_does_not_trust_the_first_ones_directories(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that made a directory may not have synced its parent yet."""
    put(FileObjectStore(root), "a/one")
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(opened_name(fd))
        real_fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    put(FileObjectStore(root), "a/two")
    assert "store" in synced


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_stays_open_but_the_roots(root: Path) -> None:
    gc.collect()  # What an earlier test left open is closed now, not while this one counts.
    without = opened()
    store = FileObjectStore(root)
    put(store, "a/b/object", some_bytes(2 * BLOCK_BYTES))
    before = opened()
    assert before == without + 1
    for _ in range(3):
        with contextlib.suppress(RemoteStorageError):
            put(store, "a/b/object")
        with contextlib.suppress(RemoteStorageError):
            put(store, "a/b/object/c")
        with contextlib.suppress(RemoteStorageError):
            read(store, "a/none")
        store.stat("a/b/object")
        next(store.read("a/b/object", limiter=UnlimitedBytes()))
        list(store.list_objects())
    assert opened() == before
    del store
    assert opened() == without


class TestHeldRoot:
    """The directory that was used first is the store; another one under its path is not."""

    @pytest.mark.parametrize("left", ["nothing", "an empty directory", "a file", "a link to another directory"])
    def test_another_directory_in_its_place_is_refused_and_left_as_it_is(
        self, root: Path, outside: Path, store: FileObjectStore, left: str
    ) -> None:
        put(store, "a/object")
        away = root.rename(root.with_name("away"))
        if left == "an empty directory":
            root.mkdir()
        elif left == "a file":
            root.write_bytes(b"")
        elif left == "a link to another directory":
            root.symlink_to(outside)
        calls: list[Callable[[], object]] = [
            lambda: put(store, "a/new"),
            lambda: store.replace("a/object", b"new"),
            lambda: store.stat("a/object"),
            lambda: store.head("a/object"),
            lambda: read(store, "a/object"),
            lambda: list(store.list_objects()),
            lambda: list(store.list_open_uploads()),
            lambda: store.abort_upload(OpenUpload("a/object", "object.~1")),
            store.check_capacity,
        ]
        for call in calls:
            with pytest.raises(ForeignStoreError, match=f"{root.name} .*is its disk mounted"):
                call()
        (failure,) = store.delete(["a/object"])
        assert "is its disk mounted" in failure.message
        assert root.exists() == (left != "nothing")
        assert {path.name for path in outside.iterdir()} == {"secret"}
        assert [path.name for path in away.rglob("*") if path.is_file()] == ["object"]

    def test_it_is_the_store_again_when_it_is_back(self, root: Path, store: FileObjectStore) -> None:
        put(store, "a/object")
        away = root.rename(root.with_name("away"))
        with pytest.raises(ForeignStoreError):
            read(store, "a/object")
        away.rename(root)
        put(store, "a/new")
        assert read(store, "a/object") == b"content"

    def test_a_directory_below_it_that_was_removed_is_made_again(self, root: Path, store: FileObjectStore) -> None:
        put(store, "a/b/object")
        store.delete(["a/b/object"])
        (root / "a" / "b").rmdir()
        (root / "a").rmdir()
        put(store, "a/b/object")
        assert read(store, "a/b/object") == b"content"

    def test_a_directory_made_again_in_its_place_is_another_one(self, root: Path, store: FileObjectStore) -> None:
        """While the old one is held, no file system gives its inode away."""
        store.check_capacity()
        root.rmdir()
        root.mkdir()
        with pytest.raises(ForeignStoreError, match="another directory now"):
            put(store, "a/new")

    def test_what_is_being_written_goes_to_the_directory_that_was_held(
        self, root: Path, store: FileObjectStore
    ) -> None:
        put(store, "a/object")
        away = root.with_name("away")

        def move(_: int) -> None:
            if not away.exists():
                root.rename(away)
                root.mkdir()

        with pytest.raises(ForeignStoreError):
            store.put("b/new", BytesSource(b"x"), crc32c_of(b"x"), limiter=UnlimitedBytes(), on_sent=move)
        assert list(root.iterdir()) == []
        assert [path.name for path in away.rglob("*") if path.is_file()] == ["object"]

    def test_a_copy_for_another_process_holds_what_it_finds(self, root: Path, store: FileObjectStore) -> None:
        put(store, "a/object")
        sent = copy.deepcopy(store)
        root.rename(root.with_name("away"))
        with pytest.raises(RemoteResourceNotFoundError):
            read(sent, "a/object")
        put(sent, "a/object", b"other")
        assert read(sent, "a/object") == b"other"


def test_names_that_no_store_wrote_are_listed_and_never_deleted(root: Path, store: FileObjectStore) -> None:
    put(store, "a/object")
    hostile = os.fsdecode(b"a/\xff\n\x1b[31m")
    (root / hostile).write_bytes(b"x")
    keys = {found.key for found in store.list_objects()}
    assert keys == {"a/object", hostile}
    (failure,) = store.delete([hostile])
    assert failure.message.isprintable()
    assert {found.key for found in store.list_objects()} == keys


# Temporary files of a store whose layout keeps them elsewhere.


def test_a_staged_name_is_removed_durably(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut brings it back: an open upload of an object that is complete."""
    store = FileObjectStore(root, staging_prefix="staging/")
    put(store, "a/one")
    calls: list[str] = []
    real_fsync, real_unlink = os.fsync, os.unlink

    def fsync(fd: int) -> None:
        calls.append(f"fsync {opened_name(fd)}")
        real_fsync(fd)

    def unlink(path: Any, **rest: Any) -> None:
        calls.append("unlink")
        real_unlink(path, **rest)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "unlink", unlink)
    put(store, "a/two")
    assert "staging" in os.fspath(root / "staging" / "a")
    assert calls[calls.index("unlink") :] == ["unlink", "fsync a", "fsync a"]


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_asking_for_the_time_leaves_no_name_among_the_objects(
    root: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed_files: bool
) -> None:
    """Another program reads these directories; the process may end at any moment."""
    store = FileObjectStore(root, staging_prefix="staging/")
    put(store, "marker")
    seen: list[set[str]] = []
    real_fsync, real_open = os.fsync, os.open

    def fsync(fd: int) -> None:
        seen.append({path.name for path in root.iterdir() if path.is_file()})
        real_fsync(fd)

    def no_unnamed_files(path: Any, flags: int, *args: Any, **rest: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real_open(path, flags, *args, **rest)

    monkeypatch.setattr(os, "fsync", fsync)
    if not has_unnamed_files:
        monkeypatch.setattr(os, "open", no_unnamed_files)
    assert store.clock_ms("marker") is not None
    assert seen
    assert all(names == {"marker"} for names in seen)
    assert list(store.list_open_uploads()) == []
