"""The numbers by which a person agrees: a question that names others is answered wrongly."""

from types import SimpleNamespace

import pytest

from include.tiering.copying import decisions as skip
from include.tiering.copying.decisions import Skip
from include.tiering.expiration import report as delete_records
from include.tiering.expiration import report as expire
from include.tiering.expiration.plan import Truncation
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import StoreMarker
from include.tiering.recovery.adopt import AdoptionPlan, PartitionAdoption
from include.tiering.recovery.rebuild import ListedPartition, RebuildPlan
from include.tiering.recovery.report import adoption_question, rebuild_question
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome, DeletionRun
from tests.doubles.expirations import planned_expiration
from tests.doubles.segments import FINISHED, partition_of, segment_of

ORDERS, PAYMENTS = partition_of("orders", 1), partition_of("payments", 2)
MARKER = StoreMarker("cluster-1", "store-1", 4)


@pytest.mark.parametrize(
    ("segments", "size_bytes", "what"),
    [
        (0, 0, "0 segments (0 B) go"),
        (1, 1_024, "1 segment (1.0 KiB) goes"),
        (1_234, 3_221_225_472, "1,234 segments (3.0 GiB) go"),
    ],
)
def test_how_much_a_raised_log_start_costs(segments: int, size_bytes: int, what: str) -> None:
    asked = delete_records.truncation_question(Truncation(ORDERS, 100, 250, segments, size_bytes))
    assert asked == f"Raise the log start of orders-1 from 100 to 250 for good? {what} with the next expire"


def test_how_much_would_expire() -> None:
    plans = [
        planned_expiration(
            ORDERS, *(segment_of(ORDERS, number, 10 * number, 10 * number + 9, state=FINISHED) for number in range(3))
        ),
        planned_expiration(PAYMENTS, segment_of(PAYMENTS, 9, 0, 9, size_bytes=1_096, state=FINISHED)),
    ]
    items = [DeletionItem(one, DeletionOutcome.PLANNED) for plan in plans for one in plan.deletions]
    run = expire.ExpireRun(DeletionRun("run", "hash", None, None), plans, items, SimpleNamespace())  # type: ignore[arg-type]
    assert expire.planned_sentence(run) == "4 segments (4.0 KiB) of 2 partitions"


def test_how_much_is_rebuilt() -> None:
    listed = (ListedPartition(ORDERS, 1_200, 2_048), ListedPartition(PAYMENTS, 34, 1_024))
    asked = rebuild_question(RebuildPlan(MARKER, None, listed, ()))
    assert asked.startswith("Rebuild metadata of 1,234 attempts (3.0 KiB) of 2 partitions in the database that is set?")
    begun = rebuild_question(RebuildPlan(MARKER, MARKER, listed[1:], ()))
    assert begun == "Go on to rebuild metadata of 34 attempts (1.0 KiB) of 1 partition?"


def test_how_much_is_adopted() -> None:
    def stored(*sizes: int) -> tuple[object, ...]:
        return tuple(SimpleNamespace(metadata=segment_of(ORDERS, 1, 0, 9, size_bytes=size)) for size in sizes)

    plan = AdoptionPlan(
        (
            PartitionAdoption(ORDERS, None, stored(1_000, 48)),  # type: ignore[arg-type]
            PartitionAdoption(PAYMENTS, 9, stored(1_000)),  # type: ignore[arg-type]
        ),
        (),
    )
    assert adoption_question(plan) == "Adopt 3 segments (2.0 KiB) of 2 partitions?"


def test_how_many_offsets_are_skipped() -> None:
    asked = skip.skip_question(Skip(ORDERS, OffsetRange(100, 1_333), elsewhere=(2, 5)))
    assert asked == (
        "orders-1: 1,234 offsets, 100..1333, will be missing from the archive for ever;"
        " some are still on broker 2 and broker 5: a copy reads whichever leads the partition. Go on without them?"
    )
    assert skip.skip_question(Skip(ORDERS, OffsetRange(7, 7))).startswith("orders-1: 1 offset, 7..7, will be missing")
