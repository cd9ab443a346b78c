"""Raising the generation of a store: workers of one database never refuse each other, a copy of it is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Engine, text

from include.tiering.clock import SystemClock
from include.tiering.database.schema import stores
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.errors import ForeignStoreError, StateConflictError
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.remote_storage.claim_store import SETTLE_SECONDS, ClaimStep, StoreClaim
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.databases import SHARED, AdjustableNow, each_database
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import CLUSTER_ID, uuid
from tests.doubles.storage_decorators import StorageDecorator
from tests.doubles.store_claims import PLACE, Killed, claim_of, marker, move

WORKERS, RUNS = 4, 12

database_kind = each_database(SHARED)


@pytest.fixture
def identities(engine: Engine, now: AdjustableNow) -> StoreIdentities:
    return StoreIdentities(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def storage(identities: StoreIdentities, tmp_path: Path) -> SegmentStorage:
    """Of this database, in the first generation."""
    storage = SegmentStorage(FileObjectStore(tmp_path), AivenLayout())
    storage.create_marker(identities.create(uuid(1), uuid(2), PLACE).current)
    return storage


def test_a_generation_is_raised_in_both(identities: StoreIdentities, storage: SegmentStorage) -> None:
    steps: list[ClaimStep] = []
    raised = claim_of(identities, storage, observe=steps.append).raise_generation()
    accepted = identities.accepted()
    assert (raised.generation, accepted.pending, accepted.conditional) == (2, None, True)
    assert raised == accepted.current == marker(storage)
    assert (raised.place, marker(storage).place, marker(storage).raised_by) == (
        PLACE,
        PLACE,
        RaisedBy("host", "sqlite:///tiering.db", 5),
    )
    assert steps == list(ClaimStep)
    with pytest.raises(ForeignStoreError, match="the keys of this store lie in"):
        claim_of(identities, storage, place=StorePlace("file:///store", "aiven", "x")).raise_generation()
    assert identities.accepted() == accepted


def test_workers_that_plan_at_once_never_refuse_each_other(
    identities: StoreIdentities, storage: SegmentStorage, tmp_path: Path
) -> None:
    """Nor a batch that runs meanwhile."""
    together = Barrier(WORKERS + 1)

    def plan(number: int) -> list[int]:
        own = SegmentStorage(FileObjectStore(tmp_path), AivenLayout())
        numbers = iter(range(10_000))
        claim = StoreClaim(
            identities,
            own,
            PLACE,
            lambda: RaisedBy(f"host-{number}", "sqlite:///tiering.db", 5),
            SystemClock(),
            lambda size: bytes([number]) + next(numbers).to_bytes(size - 1, "big"),
            lambda step: None,
        )
        together.wait()
        return [claim.raise_generation().generation for _ in range(RUNS)]

    def check() -> int:
        guarded = storage.guarded(identities.accepted, SystemClock(), PLACE)
        together.wait()
        checks = 0
        while identities.accepted().current.generation <= WORKERS * RUNS // 2:
            guarded.check_marker()
            checks += 1
        return checks

    with ThreadPoolExecutor(WORKERS + 1) as threads:
        checked = threads.submit(check)
        raised = list(threads.map(plan, range(WORKERS)))
        assert checked.result() > 0
    assert all(one == sorted(set(one)) for one in raised)
    accepted = identities.accepted()
    assert (accepted.pending, accepted.current) == (None, marker(storage))
    assert accepted.current.generation >= WORKERS * RUNS + 1


@pytest.mark.parametrize("step", ClaimStep)
def test_another_worker_goes_on_where_one_died(
    identities: StoreIdentities, storage: SegmentStorage, step: ClaimStep
) -> None:
    def die(reached: ClaimStep) -> None:
        if reached is step:
            raise Killed

    with pytest.raises(Killed):
        claim_of(identities, storage, observe=die).raise_generation()
    guarded = storage.guarded(identities.accepted, SystemClock(), PLACE)
    guarded.check_marker()
    # It ends what was begun, and raises one of its own.
    after = claim_of(identities, storage).raise_generation()
    assert after.generation == 3
    assert after == marker(storage) == identities.accepted().current
    guarded.check_marker()


def test_a_copy_with_the_same_generation_pending_does_not_own_the_store_too(
    identities: StoreIdentities, storage: SegmentStorage, engine: Engine
) -> None:
    def die(step: ClaimStep) -> None:
        if step is ClaimStep.MARKER_WRITTEN:
            raise Killed

    def row() -> dict[str, object]:
        with engine.connect() as connection:
            return dict(connection.execute(text("SELECT * FROM stores")).mappings().one())

    def restore(values: dict[str, object]) -> None:
        with engine.begin() as connection:
            connection.execute(stores.update().values(**values))

    with pytest.raises(Killed):
        claim_of(identities, storage, observe=die).raise_generation()
    of_the_copy = row()
    claim_of(identities, storage).raise_generation()
    of_the_owner = row()
    restore(of_the_copy)
    with pytest.raises(ForeignStoreError, match="another database has used store"):
        claim_of(identities, storage).raise_generation()
    with pytest.raises(ForeignStoreError):
        storage.guarded(identities.accepted, SystemClock()).check_marker()
    restore(of_the_owner)
    claim_of(identities, storage).raise_generation()


class Heedless(StorageDecorator):
    """A store whose server takes no notice of a condition."""

    def __init__(self, inner: SegmentStorage) -> None:
        super().__init__(inner)
        self.conditions: list[bool] = []

    def replaces_conditionally(self) -> bool:
        return False

    def replace_marker(
        self, expected: StoreMarker, marker: StoreMarker, *, conditional: bool = True
    ) -> StoreMarker | None:
        self.conditions.append(conditional)
        return super().replace_marker(expected, marker, conditional=conditional)


def test_without_conditions_the_marker_is_read_back_after_a_while(
    identities: StoreIdentities, storage: SegmentStorage
) -> None:
    heedless, clock = Heedless(storage), ManualClock()
    began = clock.monotonic()
    raised = claim_of(identities, heedless, clock=clock).raise_generation()
    assert (heedless.conditions, identities.accepted().conditional) == ([False], False)
    assert clock.monotonic() - began == SETTLE_SECONDS
    assert raised == marker(storage)

    class Overwritten(ManualClock):
        def sleep(self, seconds: float) -> None:
            """Another database writes in this moment."""
            theirs = StoreMarker(CLUSTER_ID, str(uuid(1)), 3, "of another database", PLACE)
            storage.replace_marker(marker(storage), theirs, conditional=False)

    with pytest.raises(ForeignStoreError, match="another database has used store"):
        claim_of(identities, heedless, clock=Overwritten()).raise_generation()


def test_a_store_is_taken_over_from_the_generation_that_was_found(
    identities: StoreIdentities, storage: SegmentStorage
) -> None:
    theirs = StoreMarker(CLUSTER_ID, str(uuid(1)), 40, "theirs", PLACE)
    storage.replace_marker(marker(storage), theirs)
    claim = claim_of(identities, storage)
    with pytest.raises(ForeignStoreError):
        claim.raise_generation()
    assert claim.take_over(theirs, author="me").generation == 41
    assert claim.raise_generation().generation == 42
    # What was found is not there any more.
    with pytest.raises(ForeignStoreError, match="was used while it was taken over"):
        claim.take_over(StoreMarker(CLUSTER_ID, str(uuid(1)), 60, "another", PLACE), author="me")
    storage.replace_marker(marker(storage), StoreMarker(CLUSTER_ID, "another", 3, "theirs"))
    with pytest.raises(ForeignStoreError, match="the store belongs to"):
        claim.take_over(marker(storage), author="me")


def test_of_two_that_take_a_store_over_at_once_nobody_is_wrong_about_it(
    identities: StoreIdentities, storage: SegmentStorage
) -> None:
    """What was pending for the first is not when it has written the marker."""
    theirs = StoreMarker(CLUSTER_ID, str(uuid(1)), 40, "theirs", PLACE)
    storage.replace_marker(marker(storage), theirs)

    def another(step: ClaimStep) -> None:
        if step is ClaimStep.PENDING_STORED:
            identities.propose_over(theirs, uuid(99), PLACE, author="another")

    with pytest.raises(ForeignStoreError, match="taken over twice at once"):
        claim_of(identities, storage, observe=another).take_over(theirs, author="me")
    assert not identities.accepted().accepts(marker(storage))
    claim_of(identities, storage).take_over(marker(storage), author="me")
    assert identities.accepted().current == marker(storage)


def test_a_take_over_that_has_not_ended_proves_nothing_to_another_worker(
    identities: StoreIdentities, storage: SegmentStorage
) -> None:
    """The database was set back. A worker has proposed its generation when a person begins to take the store over."""
    before = identities.accepted().current
    newer = StoreMarker(before.cluster_id, before.store_id, before.generation + 3, "of another database", PLACE)
    storage.replace_marker(before, newer, conditional=False)

    def begin_to_take_over(step: ClaimStep) -> None:
        if step is ClaimStep.PENDING_STORED:
            identities.propose_over(newer, uuid(9), PLACE, author="me")

    with pytest.raises(ForeignStoreError, match="another database has used store"):
        claim_of(identities, storage, observe=begin_to_take_over).raise_generation()
    assert marker(storage) == newer


def test_nothing_is_written_where_there_is_no_marker(identities: StoreIdentities, tmp_path: Path) -> None:
    """Not even what finds out about conditions: a disk that is not mounted has no directory for it."""
    identities.create(uuid(1), uuid(2), PLACE)
    store = SegmentStorage(FileObjectStore(tmp_path / "mount-point" / "store"), AivenLayout())
    with pytest.raises(ForeignStoreError, match="is its disk mounted"):
        claim_of(identities, store).raise_generation()
    assert list(tmp_path.iterdir()) == []
    assert identities.accepted().conditional is None


def test_a_place_is_asked_anew_whether_it_heeds_conditions(
    identities: StoreIdentities, storage: SegmentStorage
) -> None:
    claim_of(identities, storage).raise_generation()
    assert identities.accepted().conditional is True
    moved, heedless = StorePlace("file:///store", "aiven", "tiered-"), Heedless(storage)
    move(claim_of(identities, heedless, place=moved, clock=ManualClock()), moved)
    assert identities.accepted().conditional is False
    assert heedless.conditions == [False]


@pytest.mark.parametrize("step", ClaimStep)
def test_a_take_over_and_a_move_may_die_anywhere(
    identities: StoreIdentities, storage: SegmentStorage, step: ClaimStep
) -> None:
    def die(reached: ClaimStep) -> None:
        if reached is step:
            raise Killed

    theirs = StoreMarker(CLUSTER_ID, str(uuid(1)), 40, "theirs", PLACE)
    storage.replace_marker(marker(storage), theirs)
    with pytest.raises(Killed):
        claim_of(identities, storage, observe=die).take_over(theirs, author="me")
    claim_of(identities, storage).take_over(marker(storage), author="me")
    assert identities.accepted().accepts(marker(storage))

    moved = StorePlace("file:///store", "aiven", "tiered-")
    with pytest.raises(Killed):
        move(claim_of(identities, storage, place=moved, observe=die), moved)
    if step is ClaimStep.PENDING_STORED:
        with pytest.raises(ForeignStoreError, match=r"call \./tiering relocate-store"):
            claim_of(identities, storage).raise_generation()
    move(claim_of(identities, storage, place=moved), moved)
    accepted = identities.accepted()
    assert (accepted.current.place, accepted.pending, marker(storage).place) == (moved, None, moved)
    claim_of(identities, storage, place=moved).raise_generation()


def test_nothing_is_raised_while_metadata_are_rebuilt(
    identities: StoreIdentities, storage: SegmentStorage, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE stores SET rebuilding_since_ms = 1"))
    with pytest.raises(StateConflictError, match="being rebuilt"):
        claim_of(identities, storage).raise_generation()
