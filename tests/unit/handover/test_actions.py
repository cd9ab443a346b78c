"""What a handover asks of the platform: rounds of copies, a publication that is claimed first, the space on disks."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.copying.plan import HeldBack
from include.tiering.errors import PublicationRefusedError
from include.tiering.handover.actions import HandoverActions, store_properties
from include.tiering.handover.checks import StoreProperties
from include.tiering.handover.contract import SeededPartition
from include.tiering.handover.ports import CopyRound
from include.tiering.model.segments import Depth
from include.tiering.runs.batch import BatchEnd
from include.tiering.settings import load_settings
from tests.doubles.segments import partition_of

ORDERS = partition_of("orders", 3)
TIME_OVER, NO_WORK = BatchEnd.TIME_OVER, BatchEnd.NO_WORK


def actions(**ports: Any) -> HandoverActions:
    names = (
        "settings",
        "effective",
        "copying",
        "verification",
        "metadata",
        "storage",
        "quotas",
        "ownership",
        "publisher",
        "served",
        "brokers",
    )
    given: dict[str, Any] = {**dict.fromkeys(names), "depth": Depth.DEEP, **ports}
    return HandoverActions(**given)


class Copying:
    """A plan, and what its batches come to."""

    def __init__(self, *batches: Any, partitions: int = 1, held_back: Sequence[Any] = (), errors: Sequence[Any] = ()):
        self.batches = list(batches)
        self.planned = SimpleNamespace(partitions=[ORDERS] * partitions, held_back=held_back, errors=errors)
        self.ran: list[str] = []

    def plan(self, run_id: str, *, scope: Any, at_once: bool) -> Any:
        assert (run_id, scope.topics, at_once) == ("run", ("orders",), True)
        return self.planned

    def run_batch(self, run_id: str, batch_id: str) -> Any:
        self.ran.append(batch_id.removeprefix(run_id))
        return self.batches.pop(0)


def batch(copied: int = 0, *retriable: bool, ended: BatchEnd = NO_WORK) -> Any:
    item = SimpleNamespace(topic_id_partition=ORDERS, error="StorageError", message="no answer")
    failed = [SimpleNamespace(item=item, retriable=each) for each in retriable]
    return SimpleNamespace(copied=[None] * copied, failed=failed, ended=ended)


def held(reason: HeldBack) -> Any:
    return SimpleNamespace(topic_id_partition=ORDERS, next_offset=7, reason=reason, detail="why")


def copied(copying: Copying) -> CopyRound:
    return actions(copying=copying).copy_round("orders", "run")


def test_batches_of_a_round_follow_each_other_while_their_time_ends_them() -> None:
    copying = Copying(batch(2, ended=TIME_OVER), batch(3, ended=TIME_OVER), batch(4))
    assert copied(copying) == CopyRound(9)
    assert (copying.ran, copying.batches) == ([".0", ".1", ".2"], [])


@pytest.mark.parametrize("end", [each for each in BatchEnd if each is not TIME_OVER])
def test_a_batch_that_ends_for_another_reason_is_the_last(end: BatchEnd) -> None:
    copying = Copying(batch(1, ended=end), batch(1))
    assert copied(copying).copied_segments == 1


def test_nothing_runs_where_nothing_is_planned() -> None:
    copying = Copying(partitions=0)
    assert copied(copying) == CopyRound(0)
    assert copying.ran == []


@pytest.mark.parametrize(("retriable", "worth"), [((True,), True), ((True, False), False), ((False,), False)])
def test_failures_are_told_and_are_worth_another_round_if_all_of_them_pass(
    retriable: tuple[bool, ...], worth: bool
) -> None:
    found = copied(Copying(batch(1, *retriable)))
    assert found.failed == ("orders-3: StorageError: no answer",) * len(retriable)
    assert found.worth_retrying is worth


def test_a_directory_that_cannot_be_read_is_told_behind_what_is_held_back() -> None:
    errors = [SimpleNamespace(path="/data/orders-3", message="permission denied")]
    found = copied(Copying(batch(), held_back=[held(HeldBack.HOLE)], errors=errors))
    assert found.held_back[1:] == ("/data/orders-3: permission denied",)


def test_segments_are_verified_as_deeply_as_was_said() -> None:
    asked: list[Any] = []
    verification = SimpleNamespace(verify_segments=lambda *given: asked.append(given))
    actions(verification=verification).verify({ORDERS: frozenset()})
    assert asked == [({ORDERS: frozenset()}, Depth.DEEP)]


class Publisher:
    """Notes what is called. The publication would end at `end_offset`."""

    def __init__(
        self, calls: list[str], end_offset: int | None, refused: str | None = None, withheld: Any = None
    ) -> None:
        self.calls = calls
        self.planned = SimpleNamespace(end_offset=end_offset, refused=refused, withheld=withheld)

    def plan(self, partition: Any, *, log_start_offset: int) -> Any:
        self.calls.append(f"plan {partition} from {log_start_offset}")
        return self.planned

    def publish(self, partition: Any, *, log_start_offset: int, run_id: str, batch_id: str) -> None:
        assert (run_id, batch_id) == (f"handover-publish-{ORDERS.topic_id}", f"{run_id}-3")
        self.calls.append(f"publish {partition} from {log_start_offset}")

    def confirm(self, partition: Any) -> None:
        self.calls.append(f"confirm {partition}")


SEEDED = SeededPartition(ORDERS, 10, 99, 5, 1, 2)


def published(publisher: Publisher) -> None:
    ownership = SimpleNamespace(claim=lambda: publisher.calls.append("claim"))
    actions(publisher=publisher, ownership=ownership).publish(SEEDED)


def test_the_store_is_claimed_before_anything_is_published_and_every_record_is_confirmed() -> None:
    publisher = Publisher([], 99)
    published(publisher)
    assert publisher.calls == ["claim", "plan orders-3 from 5", "publish orders-3 from 5", "confirm orders-3"]


@pytest.mark.parametrize("end_offset", [98, 100])
def test_a_publication_that_would_end_elsewhere_than_was_decided_sends_nothing(end_offset: int) -> None:
    publisher = Publisher([], end_offset, withheld=SimpleNamespace(offset=50, reason="it failed"))
    with pytest.raises(PublicationRefusedError, match=f"end at offset {end_offset}: nothing from offset 50 on"):
        published(publisher)
    assert publisher.calls == ["claim", "plan orders-3 from 5"]
    with pytest.raises(PublicationRefusedError, match=rf"end at offset {end_offset}\. Nothing was sent"):
        published(Publisher([], end_offset))


def test_a_publication_that_would_have_no_segment_is_told_in_words() -> None:
    with pytest.raises(PublicationRefusedError, match=r"up to offset 99, but the publication would have no segment\."):
        published(Publisher([], None))


def test_a_publication_that_is_refused_says_so_by_itself() -> None:
    publisher = Publisher([], 7, refused="because")
    published(publisher)
    assert publisher.calls[2] == "publish orders-3 from 5"


@pytest.mark.parametrize(("known", "free"), [(0, 0), (5_000, 5_000), (-1, 300)])
def test_free_space_is_what_was_declared_or_that_of_the_fullest_disk_or_what_the_broker_says(
    monkeypatch: pytest.MonkeyPatch, known: int, free: int
) -> None:
    disks = {"/a": 700, "/b": 300, "/elsewhere": 1, "/unmounted": 5}

    def usage(path: Path) -> Any:
        if str(path) not in disks:
            raise FileNotFoundError(path)
        return SimpleNamespace(free=disks[str(path)])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr("include.tiering.handover.actions.is_here", lambda log_dir: log_dir.path != Path("/unmounted"))
    brokers = [(1, "/a"), (1, "/b"), (1, "/gone"), (1, "/unmounted"), (2, "/elsewhere")]
    settings: Any = SimpleNamespace(
        log_dirs=[SimpleNamespace(broker_id=broker, path=Path(path)) for broker, path in brokers]
    )
    effective = SimpleNamespace(handover=SimpleNamespace(free_bytes=known))
    brokers_say = SimpleNamespace(free_bytes=lambda broker_id: 10 * broker_id)
    made = actions(settings=settings, effective=lambda: effective, brokers=brokers_say)
    assert made.free_bytes(1) == free
    assert made.free_bytes(3) == (30 if known < 0 else known)


@pytest.mark.parametrize(
    ("url", "layout", "fields", "properties"),
    [
        ("file:///srv/remote", "local_tiered_storage", "", ("local_tiered_storage", "/srv/remote", False)),
        ("file:///srv/remote", "aiven", "", ("aiven", "/srv/remote", False)),
        ("s3://bucket/p", "aiven", "REMOTE_SIZE", ("aiven", None, True)),
    ],
)
def test_the_store_is_described_as_the_checks_compare_it(
    url: str, layout: str, fields: str, properties: tuple[str, str | None, bool]
) -> None:
    environ = {"TIERING_REMOTE_STORAGE__URL": url, "TIERING_REMOTE_STORAGE__LAYOUT": layout}
    if fields:
        environ["TIERING_REMOTE_STORAGE__CUSTOM_METADATA_FIELDS_INCLUDE"] = fields
    assert store_properties(load_settings(environ=environ)) == StoreProperties(*properties)
