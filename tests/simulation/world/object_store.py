"""The object store of a world, and listings of it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from include.tiering.errors import (
    RemoteChecksumError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
)
from include.tiering.model.segments import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.object_store import (
    KeyFailure,
    ObjectEntry,
    ObjectStat,
    OpenUpload,
    SeenObject,
    blocks_of,
)
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.simulation.kernel.choices import Choices, Menu
from tests.simulation.kernel.scheduler import Killed, Process, Scheduler, Verdict
from tests.simulation.world.records import crc32c

# A model object store: conditional writes, lost answers, torn and late writes, silent damage, half-done deletes.
# `StoreState` is the bucket, shared by all; `ModelStore` is the `ObjectStore` of one process. Layout, manifest and
# marker around it are the product's own.


@dataclass(eq=False, slots=True)
class Upload:
    """A write that is not an object yet. `listed`: a multipart upload, which can be seen and aborted."""

    key: str
    process: Process | None
    listed: bool
    content: bytes = b""
    complete: bool = False
    aborted: bool = False
    began_ms: int = 0
    token: str = ""


class StoreWatch(Protocol):
    """Told what happens to objects."""

    def upload_begun(self, key: str, state: "StoreState") -> None: ...

    def object_created(self, key: str, content: bytes, process: Process | None, state: "StoreState") -> None:
        """Or replaced."""
        ...

    def object_goes(self, key: str, process: Process, state: "StoreState") -> None:
        """Right before it is not there any more."""
        ...

    def bytes_sent(self, process: Process, size_bytes: int) -> None: ...

    def marker_read(self, process: Process) -> None: ...

    def upload_hidden(self, key: str) -> None:
        """A list did not show it yet."""
        ...

    def upload_aborted(self, upload: Upload) -> None: ...

    def note(self, actor: str, what: str, detail: str, outcome: str) -> None: ...


_LIST_LAG_MS = 20_000
_DAMAGE = Menu(("intact", 85), ("truncated", 5), ("flipped", 5), ("vanished", 5))


@dataclass(slots=True)
class StoreState:
    """Everything in the bucket. `damages` and `refuses_keys` are tempers of the schedule."""

    choices: Choices
    objects: dict[str, bytes] = field(default_factory=dict)
    written_ms: dict[str, int] = field(default_factory=dict)
    """By key, by the store's clock. What the schedule begins with has none."""
    uploads: list[Upload] = field(default_factory=list)
    late: list[Upload] = field(default_factory=list)
    """Writes whose process died: they may still arrive."""
    brokers_own: dict[str, bytes] = field(default_factory=dict)
    """What brokers wrote. Nobody else may touch it."""
    confirms: bool = True
    lists_lag: bool = False
    damages: bool = False
    refuses_keys: bool = False
    hidden: frozenset[str] = frozenset()
    """Keys that are there, and that answers deny for a while."""
    hides_all_since: int | None = None
    """The step from which on it denies all that it had then."""
    shown_step: int = -1
    """The step at which it last showed again what it had hidden."""
    full: bool = False
    begun: int = 0
    """Uploads so far."""

    def seen(self, key: str) -> bytes | None:
        """As answers say."""
        return None if key in self.hidden else self.objects.get(key)

    def show_all(self, step: int) -> None:
        if self.hidden:
            self.hidden, self.hides_all_since, self.shown_step = frozenset(), None, step

    def begin(self, key: str, process: Process | None, *, listed: bool, now_ms: int) -> Upload:
        self.begun += 1
        upload = Upload(key, process, listed=listed, began_ms=now_ms, token=f"upload-{self.begun}")
        self.uploads.append(upload)
        return upload

    def land_late(self, watch: StoreWatch, now_ms: int) -> bool:
        """One write of a dead process arrives after all; False if there is none that can."""
        while self.late:
            upload = self.late.pop(self.choices.number(len(self.late)))
            if upload.aborted or upload.key in self.objects:
                continue
            self._remove(upload)
            self.objects[upload.key] = upload.content
            self.written_ms[upload.key] = now_ms
            watch.note("store", "a late write arrives", upload.key, "")
            watch.object_created(upload.key, upload.content, None, self)
            return True
        return False

    def forget(self, process: Process) -> None:
        """The process died: a write that was sent whole may be on its way still."""
        for upload in [one for one in self.uploads if one.process is process]:
            if upload.complete:
                self.late.append(upload)
            if not upload.listed:
                self._remove(upload)

    def _remove(self, upload: Upload) -> None:
        if upload in self.uploads:
            self.uploads.remove(upload)


class Place(Protocol):
    """What a URL leads to."""

    def now(self) -> StoreState:
        """Raises TieringError where that is nothing that may be used."""
        ...


class ModelStore:
    """`ObjectStore` as one process sees it."""

    def __init__(
        self, place: Place, scheduler: Scheduler, process: Process, watch: StoreWatch, *, url: str = "model://store"
    ) -> None:
        self._place = place
        self._scheduler = scheduler
        self._process = process
        self._watch = watch
        self._url = url

    @property
    def state(self) -> StoreState:
        """What is there now."""
        return self._place.now()

    slow_downs = 0

    def describe(self) -> str:
        return self._url

    def put(
        self,
        key: str,
        body: ByteSource,
        crc32c: int,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
        running_crc32c: Sequence[int] = (),
    ) -> bool:
        self.request("store.put", key, "store write", lambda: None)
        state = self.state
        listed = not _is_our_own(key) and state.choices.number(2) == 1
        upload = state.begin(key, self._process, listed=listed, now_ms=self._scheduler.now_ms)
        self._watch.upload_begun(key, state)
        try:
            content = b""
            for block in blocks_of(body, 0, body.size_bytes, limiter):
                content += bytes(block)
                if not _is_our_own(key):
                    self._watch.bytes_sent(self._process, len(block))
                on_sent(len(block))
            upload.content, upload.complete = content, True
            intact = self.request("store.put completes", key, "put", lambda: self._complete(state, upload, crc32c))
        except Killed:
            raise
        except BaseException:
            upload.aborted = True
            if upload in state.uploads:
                state.uploads.remove(upload)
            raise
        return state.confirms and intact

    def read_version(self, key: str, max_bytes: int) -> tuple[bytes, str] | None:
        content = self.request("store.read version", key, "store read", lambda: self.state.seen(key))
        if key == MARKER_KEY:
            self._watch.marker_read(self._process)
        return None if content is None else (content, content.hex())

    def replace(self, key: str, content: bytes, *, version: str | None = None) -> bool:
        def replace() -> bool:
            state = self.state
            found = state.objects.get(key)
            if version is not None and (found is None or found.hex() != version):
                return False
            state.objects[key] = content
            self._watch.object_created(key, content, self._process, state)
            return True

        return bool(self.request("store.replace", key, "put", replace))

    def replaces_conditionally(self, key: str) -> bool:
        return True

    def stat(self, key: str, *, read_back: bool = True, most_bytes: int | None = None) -> ObjectStat | None:
        content = self.request("store.stat", key, "store read", lambda: self.state.seen(key))
        return None if content is None else ObjectStat(len(content), crc32c(content))

    def head(self, key: str) -> SeenObject | None:
        content = self.request("store.head", key, "store read", lambda: self.state.seen(key))
        return None if content is None else SeenObject(len(content), self.state.written_ms.get(key, 0))

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        content = self.request("store.read", key, "store read", lambda: self.state.seen(key))
        if key == MARKER_KEY:
            self._watch.marker_read(self._process)
        end = None if last is None else last + 1
        if content is None or first >= max(1, len(content)) or (end is not None and end > len(content)):
            raise RemoteResourceNotFoundError(f"{key}: not found")
        yield content[first:end]

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        return self.request("store.delete", _shown(keys), "delete", lambda: self._delete(keys), self._delete_some(keys))

    def delete_versions(self, versions: Collection[tuple[str, str]]) -> tuple[KeyFailure, ...]:
        return tuple(KeyFailure(key, "the store keeps no versions", retriable=False) for key, _ in versions)

    def list_objects(self, prefix: str = "") -> Iterator[ObjectEntry]:
        found = self.request("store.list", prefix, "store read", lambda: sorted(self.state.objects.items()))
        hidden = self.state.hidden
        return (
            ObjectEntry(key, len(content)) for key, content in found if key.startswith(prefix) and key not in hidden
        )

    @property
    def keeps_checksums(self) -> bool:
        """Return False: a file system keeps none."""
        return False

    @property
    def leaves_uploads(self) -> bool:
        return False

    def list_open_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        found = self.request("store.list uploads", prefix, "store read", lambda: list(self.state.uploads))
        for upload in found:
            if upload.listed and upload.key.startswith(prefix):
                if self.lags(upload):
                    self._watch.upload_hidden(upload.key)
                else:
                    yield OpenUpload(upload.key, upload.token)

    def lags(self, upload: Upload) -> bool:
        """A list shows what began a while ago."""
        is_young = self._scheduler.now_ms - upload.began_ms < _LIST_LAG_MS
        return self.state.lists_lag and is_young and not self._scheduler.quiet

    def abort_upload(self, upload: OpenUpload) -> None:
        def abort() -> None:
            for one in list(self.state.uploads):
                if one.token == upload.token:
                    one.aborted = True
                    self._watch.upload_aborted(one)
                    self.state.uploads.remove(one)

        self.request("store.abort upload", upload.key, "delete", abort)

    def clock_ms(self, key: str) -> int | None:
        """It cannot be told."""
        return None

    def check_capacity(self) -> None:
        """There is always room."""

    def _complete(self, state: StoreState, upload: Upload, expected_crc32c: int) -> bool:
        """Where it began: a request or an open directory goes on there."""
        key, content = upload.key, upload.content
        if upload.aborted:
            raise RemoteStorageError(f"{key}: no such upload")
        state._remove(upload)
        if key in state.objects:
            raise RemoteObjectExistsError(f"{key}: it is there already")
        if crc32c(content) != expected_crc32c:
            raise RemoteChecksumError(f"{key}: other bytes were received")
        may_damage = state.damages and not self._scheduler.quiet and not _is_our_own(key)
        damage = state.choices.pick(_DAMAGE) if may_damage else "intact"
        if damage != "intact":
            self._watch.note("store", f"loses an object silently: {damage}", key, "")
        if damage == "truncated":
            content = content[:-1]
        elif damage == "flipped":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if damage != "vanished":
            state.objects[key] = content
            state.written_ms[key] = self._scheduler.now_ms
            self._watch.object_created(key, content, self._process, state)
        return damage == "intact"

    def _delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        failures, state = [], self.state
        for key in keys:
            if state.refuses_keys and not self._scheduler.quiet and state.choices.number(6) == 1:
                failures.append(KeyFailure(key, "access denied", retriable=state.choices.number(2) == 1))
            elif key in state.objects:
                self._watch.object_goes(key, self._process, state)
                del state.objects[key]
        return tuple(failures)

    def _delete_some(self, keys: Collection[str]) -> Callable[[], None]:
        def some() -> None:
            self._delete(list(keys)[: len(keys) // 2])

        return some

    def request(
        self,
        label: str,
        detail: str,
        kind: str,
        effect: Callable[[], object],
        half: Callable[[], None] = lambda: None,
    ):
        return perform(self._scheduler, self._process, self._watch, label, detail, kind, effect, _unavailable, half)


def _is_our_own(key: str) -> bool:
    """A record of the store, and no segment's."""
    return key.startswith("_tiering-")


def _unavailable(label: str) -> Exception:
    return RemoteStorageUnavailableError(f"{label}: 503")


def _shown(keys: Collection[str]) -> str:
    return f"{len(keys)} objects, {next(iter(keys))} the first" if keys else "nothing"


def perform(
    scheduler: Scheduler,
    process: Process,
    watch: StoreWatch,
    label: str,
    detail: str,
    kind: str,
    effect: Callable[[], object],
    error_of: Callable[[str], Exception],
    half: Callable[[], None] = lambda: None,
):
    """One call at a scheduling point, with whatever was decided to go wrong with it."""
    verdict = scheduler.point(process, label, kind)
    if verdict is Verdict.FAIL_BEFORE:
        watch.note(process.name, label, detail, "fails, without effect")
        raise error_of(label)
    if verdict is Verdict.FAIL_MIDDLE:
        half()
        watch.note(process.name, label, detail, "fails half way")
        raise error_of(label)
    try:
        result = effect()
    except Exception as error:
        watch.note(process.name, label, detail, type(error).__name__)
        raise
    if verdict is Verdict.OK:
        watch.note(process.name, label, detail, "")
        return result
    if verdict is Verdict.FAIL_AFTER:
        watch.note(process.name, label, detail, "done, the answer is lost")
        raise error_of(label)
    if verdict is Verdict.KILL_AFTER:
        watch.note(process.name, label, detail, "done, and the process is killed")
        process.dead = True
        raise Killed
    watch.note(process.name, label, detail, "done, and the process stalls")
    scheduler.stall(process)
    scheduler.point(process, label, "stalled")
    return result
