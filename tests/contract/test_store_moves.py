"""Moving a store to another place: a crash, another move or another database leaves at most one place in force."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from include.tiering.database.store_identity import StoreIdentities
from include.tiering.errors import ForeignStoreError, RemoteStorageUnavailableError, RemoteStoreMissingError
from include.tiering.model.ownership import AcceptedMarkers, StoreMarker, StorePlace
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.claim_store import ClaimStep, StoreMove
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.databases import SHARED, AdjustableNow, each_database
from tests.doubles.segments import CLUSTER_ID, uuid
from tests.doubles.store_claims import PLACE, Killed, claim_of, marker, move

INSIDE = StorePlace("file:///store/other", "aiven", "")
ELSEWHERE = StorePlace("file:///elsewhere", "aiven", "")
PREFIXED = StorePlace("file:///store", "aiven", "tiered-")

database_kind = each_database(SHARED)


@pytest.fixture
def identities(engine: Engine, now: AdjustableNow) -> StoreIdentities:
    return StoreIdentities(engine, CLUSTER_ID, now_ms=now)


def opened(directory: Path) -> SegmentStorage:
    directory.mkdir(exist_ok=True)
    return SegmentStorage(FileObjectStore(directory), AivenLayout())


@pytest.fixture
def storage(identities: StoreIdentities, tmp_path: Path) -> SegmentStorage:
    """Of this database, in the first generation."""
    storage = opened(tmp_path / "store")
    storage.create_marker(identities.create(uuid(1), uuid(2), PLACE).current)
    return storage


@pytest.fixture
def other(tmp_path: Path) -> SegmentStorage:
    """An empty place with another URL."""
    return opened(tmp_path / "other")


@pytest.mark.parametrize(
    "theirs",
    [
        StoreMarker("another-cluster", str(uuid(8)), 1),
        StoreMarker(CLUSTER_ID, str(uuid(8)), 1),
        # A later generation of this database's own store, which names the very place that is moved to.
        StoreMarker(CLUSTER_ID, str(uuid(1)), 40, "theirs", StorePlace("file:///store/other", "aiven", "")),
        StoreMarker(CLUSTER_ID, str(uuid(1)), 40, "theirs"),
    ],
    ids=["another cluster", "another store", "a copy of this database", "a copy that names no place"],
)
def test_a_place_that_another_database_owns_is_not_moved_to(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage, theirs: StoreMarker
) -> None:
    moved, new = INSIDE, other
    new.create_marker(theirs)
    before = identities.accepted(), marker(storage)
    with pytest.raises(ForeignStoreError):
        move(claim_of(identities, new, place=moved), moved, left=storage)
    assert (identities.accepted(), marker(storage)) == before
    assert marker(new) == theirs


@pytest.mark.parametrize("step", ClaimStep)
def test_a_move_behind_another_url_may_die_anywhere(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage, step: ClaimStep
) -> None:
    """The old marker is raised before the new one is there; a plan does not go on with half a move."""

    def die(reached: ClaimStep) -> None:
        if reached is step:
            raise Killed

    moved, new, before = INSIDE, other, marker(storage)
    with pytest.raises(Killed):
        move(claim_of(identities, new, place=moved, observe=die), moved, left=storage)
    if step is ClaimStep.PENDING_STORED:
        assert (marker(storage), new.read_marker()) == (before, None)
        for place in (PLACE, moved):
            with pytest.raises(ForeignStoreError, match=r"call \./tiering relocate-store"):
                claim_of(identities, storage, place=place).raise_generation()
    own = move(claim_of(identities, new, place=moved), moved, left=storage)
    assert identities.accepted().current == own == marker(new)
    assert (own.place, marker(new).place, marker(storage).place, identities.accepted().pending) == (
        moved,
        moved,
        moved,
        None,
    )
    claim_of(identities, new, place=moved).raise_generation()


def killed_at(step: ClaimStep, reached: ClaimStep) -> None:
    if reached is step:
        raise Killed


@pytest.mark.parametrize("step", [ClaimStep.PENDING_STORED, ClaimStep.MARKER_WRITTEN])
@pytest.mark.parametrize("place", [PREFIXED, INSIDE, ELSEWHERE], ids=["same URL", "inside", "elsewhere"])
def test_a_generation_that_a_plan_began_is_completed_before_a_move(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage, place: StorePlace, step: ClaimStep
) -> None:
    with pytest.raises(Killed):
        claim_of(identities, storage, observe=lambda reached: killed_at(step, reached)).raise_generation()
    new = storage if place.url == PLACE.url else other
    own = move(claim_of(identities, new, place=place), place, left=storage)
    assert (own.generation, own.place) == (3, place)
    assert identities.accepted() == AcceptedMarkers(own)
    assert marker(storage) == marker(new) == own


def test_a_move_that_has_not_left_the_old_place_gives_way_to_another(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage, tmp_path: Path
) -> None:
    third = opened(tmp_path / "third")
    begun = claim_of(identities, other, observe=lambda reached: killed_at(ClaimStep.PENDING_STORED, reached))
    with pytest.raises(Killed):
        move(begun, INSIDE, left=storage)
    own = move(claim_of(identities, third, place=ELSEWHERE), ELSEWHERE, left=storage)
    assert own.place == ELSEWHERE
    assert identities.accepted() == AcceptedMarkers(own)
    assert marker(storage) == marker(third) == own
    assert other.read_marker() is None


def test_a_move_that_has_left_the_old_place_is_completed_first(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage, tmp_path: Path
) -> None:
    third = opened(tmp_path / "third")
    begun = claim_of(identities, other, observe=lambda reached: killed_at(ClaimStep.MARKER_WRITTEN, reached))
    with pytest.raises(Killed):
        move(begun, INSIDE, left=storage)
    before = identities.accepted()
    with pytest.raises(ForeignStoreError, match=f"a move of the store to {INSIDE} was begun: set remote_storage to it"):
        move(claim_of(identities, third, place=ELSEWHERE), ELSEWHERE, left=storage)
    assert identities.accepted() == before
    assert third.read_marker() is None
    assert move(claim_of(identities, other, place=INSIDE), INSIDE, left=storage).place == INSIDE
    assert move(claim_of(identities, third, place=ELSEWHERE), ELSEWHERE, left=other).place == ELSEWHERE


def missing(place: StorePlace) -> RemoteStorage:
    raise RemoteStoreMissingError(f"there is no {place}")


def test_a_store_whose_old_place_is_gone_moves_to_one_that_cannot_be_the_same(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage
) -> None:
    before = identities.accepted()
    with pytest.raises(ForeignStoreError, match=r"name the same objects, and there is no _tiering-store\.json"):
        StoreMove(claim_of(identities, other, place=INSIDE), missing).run(INSIDE, author="me")
    assert (identities.accepted(), other.read_marker()) == (before, None)
    own = StoreMove(claim_of(identities, other, place=ELSEWHERE), missing).run(ELSEWHERE, author="me")
    assert own == marker(other) == identities.accepted().current
    assert (own.generation, own.place) == (2, ELSEWHERE)


def test_a_marker_that_came_along_proves_the_new_place(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage
) -> None:
    other.create_marker(marker(storage))
    own = StoreMove(claim_of(identities, other, place=INSIDE), missing).run(INSIDE, author="me")
    assert own == marker(other) == identities.accepted().current
    assert marker(other).place == INSIDE


def test_a_store_moves_back_to_the_place_that_it_left(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage
) -> None:
    move(claim_of(identities, other, place=ELSEWHERE), ELSEWHERE, left=storage)
    claim_of(identities, other, place=ELSEWHERE).raise_generation()
    assert marker(storage).generation < marker(other).generation
    own = move(claim_of(identities, storage), PLACE, left=other)
    assert own == marker(storage) == marker(other) == identities.accepted().current
    assert (own.generation, marker(storage).place) == (4, PLACE)


def test_a_store_does_not_move_back_if_it_cannot_prove_that_it_left(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage
) -> None:
    """The left marker may have been written by a copy of this database, which moved the store too."""
    move(claim_of(identities, other, place=ELSEWHERE), ELSEWHERE, left=storage)
    claim_of(identities, other, place=ELSEWHERE).raise_generation()
    before = identities.accepted(), marker(storage)
    with pytest.raises(ForeignStoreError):
        StoreMove(claim_of(identities, storage), missing).run(PLACE, author="me")
    assert (identities.accepted(), marker(storage)) == before


def test_a_place_that_another_database_claims_during_the_move_is_not_left(
    identities: StoreIdentities, storage: SegmentStorage, other: SegmentStorage
) -> None:
    theirs = StoreMarker(CLUSTER_ID, str(uuid(1)), 2, "theirs", PLACE)

    def claim(step: ClaimStep) -> None:
        if step is ClaimStep.PENDING_STORED:
            storage.replace_marker(marker(storage), theirs, conditional=True)

    with pytest.raises(ForeignStoreError):
        move(claim_of(identities, other, place=INSIDE, observe=claim), INSIDE, left=storage)
    assert marker(storage) == theirs
    assert other.read_marker() is None


def test_of_two_moves_at_once_the_first_says_where_the_store_is_now(
    identities: StoreIdentities, storage: SegmentStorage
) -> None:
    another = StorePlace(PLACE.url, PLACE.layout, "another-")
    calls = []

    def require_idle() -> None:
        calls.append(identities.accepted().pending is not None)
        if len(calls) == 3:
            move(claim_of(identities, storage, place=another), another)

    mover = StoreMove(claim_of(identities, storage, place=PREFIXED), lambda place: storage)
    with pytest.raises(ForeignStoreError, match=f"moved twice at once, now it is at {another}"):
        mover.run(PREFIXED, author="me", require_idle=require_idle)
    assert calls == [False, True, True]
    assert identities.accepted() == AcceptedMarkers(marker(storage))
    assert marker(storage).place == another


def test_a_store_without_a_recorded_place_is_not_moved(identities: StoreIdentities, other: SegmentStorage) -> None:
    before = identities.create(uuid(1), uuid(2))
    other.create_marker(before.current)
    with pytest.raises(ForeignStoreError, match="place"):
        move(claim_of(identities, other, place=ELSEWHERE), ELSEWHERE)
    assert (identities.accepted(), marker(other)) == (before, before.current)


@pytest.mark.parametrize(
    ("recorded", "found", "settings", "wanted"),
    [
        (PLACE, PLACE, PLACE, PLACE),
        (PLACE, None, PLACE, PLACE),
        (PLACE, None, ELSEWHERE, "refused"),
        (PLACE, ELSEWHERE, PLACE, "refused"),
        # The marker knows better than the database of an earlier version.
        (None, PLACE, PLACE, PLACE),
        (None, PLACE, ELSEWHERE, "refused"),
        # Nobody has recorded where the keys are: the settings prove nothing.
        (None, None, PLACE, None),
    ],
)
def test_a_store_is_taken_over_at_the_place_that_somebody_recorded(
    identities: StoreIdentities,
    other: SegmentStorage,
    recorded: StorePlace | None,
    found: StorePlace | None,
    settings: StorePlace,
    wanted: StorePlace | str | None,
) -> None:
    before = identities.create(uuid(1), uuid(2), recorded)
    theirs = StoreMarker(CLUSTER_ID, str(uuid(1)), 40, "theirs", found)
    other.create_marker(theirs)
    claim = claim_of(identities, other, place=settings)
    if wanted == "refused":
        with pytest.raises(ForeignStoreError):
            claim.take_over(theirs, author="me")
        assert (identities.accepted(), marker(other)) == (before, theirs)
    else:
        assert claim.take_over(theirs, author="me").place == wanted
        assert (marker(other).place, marker(other).generation) == (wanted, 41)


class Overtaken(StoreIdentities):
    """Another run makes its own generation pending first, each time."""

    proposals = 0

    def propose(self, token: Uuid, place: StorePlace | None) -> AcceptedMarkers:
        self.proposals += 1
        super().propose(uuid(1000 + self.proposals), place)
        return super().propose(token, place)


def test_a_run_that_is_never_first_gives_up(engine: Engine, now: AdjustableNow, storage: SegmentStorage) -> None:
    overtaken = Overtaken(engine, CLUSTER_ID, now_ms=now)
    with pytest.raises(RemoteStorageUnavailableError, match="was faster, 100 times in succession"):
        claim_of(overtaken, storage).raise_generation()
    assert overtaken.proposals == 100
    assert overtaken.accepted() == AcceptedMarkers(marker(storage))
