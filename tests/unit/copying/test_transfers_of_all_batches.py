"""How many transfers a batch has beside other batches, and when the limits change while it runs."""

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from include.tiering.clock import WINDOW_SECONDS, Clock, SystemClock
from include.tiering.copying import copy_batch
from include.tiering.runs.contract import BatchProgress
from tests.doubles.deployment import World
from tests.doubles.patience import eventually
from tests.doubles.storage_decorators import SlowStorage
from tests.unit.copying.test_transfers_in_flight import Meeting

TWENTY = [f"run/{number}" for number in range(20)]


def report(world: World, batch_ids: Sequence[str], *, finished: bool = False) -> None:
    for batch_id in batch_ids:
        world.work.report_progress(BatchProgress("run", batch_id, None, "host", 1, "", 0, 0, 0.0, finished))


class SlowCopies(SlowStorage):
    """Only what is sent takes time."""

    def before(self, operation: str, detail: str) -> None:
        if operation == "copy_log_segment":
            super().before(operation, detail)


def slowly(world: World, waits: dict[tuple[str, int], set[tuple[str, int]]] | None = None) -> Meeting:
    """A store that takes as long for a segment as a batch takes until it has several slots."""
    slow = SlowCopies(world.storage, cast(Clock, SystemClock()), 3 * WINDOW_SECONDS)
    world.storage = Meeting(slow, waits or {})
    return world.storage


@pytest.mark.parametrize(("total", "most"), [(40, 2), (19, 1)])
def test_a_batch_has_its_part_of_the_transfers_of_all_batches_that_run(world: World, total: int, most: int) -> None:
    """Of twenty batches, one of which has ended; with fewer transfers than batches each has one."""
    world.source.add("orders", segments=6)
    world.plan()
    report(world, TWENTY[1:] if total == 40 else TWENTY)
    report(world, ["ended"], finished=True)
    store = slowly(world)
    assert len(world.batch(transfers=16, total_transfers=total).copied) == 6
    assert store.most_in_flight == most


def test_twenty_batches_at_once_have_no_more_transfers_than_all_may_have(world: World) -> None:
    replicas = [world.source.add("orders", number, segments=4) for number in range(20)]
    world.plan()
    report(world, TWENTY)
    store = slowly(world)
    batches = [
        threading.Thread(target=world.batch, args=("run", batch_id), kwargs={"transfers": 16, "total_transfers": 40})
        for batch_id in TWENTY
    ]
    for batch in batches:
        batch.start()
    for batch in batches:
        batch.join()
    assert [len(world.offsets(replica)) for replica in replicas] == [4] * 20
    assert store.most_in_flight <= 40


def test_a_batch_takes_the_part_of_batches_that_end_while_it_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_batch, "_LOOK_AGAIN_SECONDS", WINDOW_SECONDS)
    world.source.add("orders", segments=6)
    world.plan()
    report(world, TWENTY)
    store = slowly(world, {("orders", 10): {("orders", 20), ("orders", 30)}})
    send = store.copy_log_segment

    def end_the_others(metadata: Any, *args: Any, **options: Any) -> Any:
        if metadata.start_offset == 10:
            report(world, TWENTY[1:], finished=True)
        return send(metadata, *args, **options)

    store.copy_log_segment = end_the_others  # type: ignore[method-assign]
    assert len(world.batch(transfers=4, total_transfers=20).copied) == 6
    assert store.most_in_flight >= 2


@pytest.mark.parametrize("changed", [{"transfers": 1}, {"queued_bytes": 1}, {"total_transfers": 1}], ids=str)
def test_a_limit_that_is_lowered_while_a_batch_runs_is_obeyed_by_it(
    world: World, monkeypatch: pytest.MonkeyPatch, changed: dict[str, int]
) -> None:
    """Those in flight end; from then on one at a time is sent."""
    monkeypatch.setattr(copy_batch, "_LOOK_AGAIN_SECONDS", WINDOW_SECONDS)
    world.source.add("orders", segments=9)
    world.plan()
    store = slowly(world, {("orders", 0): {("orders", 10), ("orders", 20)}})
    send, beside = store.copy_log_segment, list[int]()

    def lower(metadata: Any, *args: Any, **options: Any) -> Any:
        if metadata.start_offset == 20:
            world.limits_now = changed
        elif metadata.start_offset > 60:
            beside.append(store.in_flight)
        return send(metadata, *args, **options)

    store.copy_log_segment = lower  # type: ignore[method-assign]
    assert len(world.batch(transfers=4).copied) == 9
    assert beside == [0, 0]


def test_a_limit_that_is_raised_while_a_batch_runs_is_used_by_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_batch, "_LOOK_AGAIN_SECONDS", WINDOW_SECONDS)
    world.source.add("orders", segments=6)
    world.plan()
    store = slowly(world, {("orders", 10): {("orders", 20), ("orders", 30)}})
    send = store.copy_log_segment

    def raise_it(metadata: Any, *args: Any, **options: Any) -> Any:
        if metadata.start_offset == 10:
            world.limits_now = {"transfers": 4}
        return send(metadata, *args, **options)

    store.copy_log_segment = raise_it  # type: ignore[method-assign]
    assert len(world.batch(transfers=1).copied) == 6
    assert store.most_in_flight >= 2


def test_what_fails_beside_another_failure_of_its_partition_is_not_counted_as_planned(world: World) -> None:
    """It stays planned for another batch. Of the two only the first is a failure of this batch."""
    world.source.add("orders", segments=2, size_bytes=1000)
    world.plan()
    both = {("orders", 0), ("orders", 10)}
    world.storage = Meeting(world.storage, {("orders", 0): {("orders", 10)}}, both)
    (failure,) = world.batch(transfers=2).failed
    assert failure.item.segment.base_offset == 0
    (progress,) = world.work.progress("run")
    assert (progress.planned_bytes, progress.done_bytes) == (1000, 0)


def test_the_label_of_a_batch_says_how_many_partitions_it_has(world: World) -> None:
    world.source.add("orders", 0, segments=1)
    world.source.add("orders", 1, segments=1)
    world.source.add("payments", 0, segments=1)
    world.urge(orders=2, payments=1)
    labels = set[str]()
    store = slowly(world, {("orders", 0): {("payments", 0)}})
    send = store.copy_log_segment

    def until_all_are_told(metadata: Any, *args: Any, **options: Any) -> Any:
        if metadata.topic_id_partition.topic == "payments":
            eventually(lambda: _has_three(world, labels), "the batch has told of its partitions")
        return send(metadata, *args, **options)

    store.copy_log_segment = until_all_are_told  # type: ignore[method-assign]
    assert len(world.batch(transfers=4).copied) == 3
    assert "orders-0 and 2 more" in labels
    (progress,) = world.work.progress("run")
    assert progress.partition == ""


def _has_three(world: World, labels: set[str]) -> bool:
    labels.update(each.partition for each in world.work.progress("run"))
    return any("and 2 more" in label for label in labels)
