"""Raise the generation of the store, which proves that this database, and no copy of it, owns it; and move a store.

Every run that plans copies or deletions starts with it. The next generation is drawn with a random token, so a copy of
the database that raises it too writes another marker, and one of the two is refused.

    step            done when it is reached               a crash right after it leaves       who continues
    (begun)         nothing                               the previous generation             -
    PENDING_STORED  the next generation is pending in     the previous marker, which is       the next run that
                    the database                          still accepted                      plans, in any process
    MARKER_WRITTEN  the store's marker has it; it was     a marker that is accepted, because  the same
                    replaced on the condition that it     it is pending
                    was the expected one
    SETTLED         it is the database's own generation,  the final state                     -
                    nothing is pending

The write of the marker is atomic in the store (for files see `remote_storage.file.store`). No request is sent inside a
transaction. All processes of this database see the same pending generation, so each may continue what another began,
and both succeed. A copy of the database that was made meanwhile has the same pending generation, too, so completing it
proves nothing about that copy: therefore a run ends only with a generation that it drew itself.

A move changes the place of a store's keys to another one, which has its objects already:

    step            what is in force                      who continues after a crash
    PENDING_STORED  the old place; the new place is       the next move to the same place; a plan is refused
                    pending, with the next generation
    (left raised)   the marker of the old place, if its   the same
                    URL differs, is of the pending
                    generation
    MARKER_WRITTEN  the new place has its marker          the same
    SETTLED         the new place                         -
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError, RemoteStorageUnavailableError, RemoteStoreMissingError
from include.tiering.model.ownership import NOT_RECORDED, AcceptedMarkers, RaisedBy, StoreMarker, StorePlace, elsewhere
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.contract import RemoteStorage

SETTLE_SECONDS: Final = 2.0
"""Wait before the marker is read back from a store without conditional writes."""
MOST_ROUNDS: Final = 100


class ClaimStep(StrEnum):
    """Steps of a claim, in order; each is reported after it is done."""

    PENDING_STORED = "pending stored"
    MARKER_WRITTEN = "marker written"
    SETTLED = "settled"


class StoreGenerations(Protocol):
    """The row of one store in the database. Each method is one transaction."""

    def accepted(self) -> AcceptedMarkers:
        """Return the markers that are accepted now. Raises MetadataUnavailableError if no store is recorded."""
        ...

    def propose(self, token: Uuid, place: StorePlace | None) -> AcceptedMarkers:
        """Make the next generation pending, with this token and place, unless one is pending; return the result."""
        ...

    def propose_over(
        self, found: StoreMarker, token: Uuid, place: StorePlace | None, *, author: str
    ) -> AcceptedMarkers:
        """Make a generation pending that is above that of `found` and the database's own, and record an event.

        A generation that is pending already is replaced.
        """
        ...

    def propose_move(
        self, token: Uuid, place: StorePlace, *, replaces: StoreMarker | None, author: str
    ) -> AcceptedMarkers:
        """Make the next generation pending in another place, and record an event; return the result.

        Nothing changes if another generation than `replaces` is pending. Whether the new place supports conditional
        writes is recorded as unknown.
        """
        ...

    def settle(self, pending: StoreMarker) -> AcceptedMarkers:
        """Make `pending` the database's own generation if it is still the pending one; return the result."""
        ...

    def record_conditional_writes(self, supported: bool) -> None:
        """Store whether the store compares versions when it replaces an object."""
        ...


@dataclass(frozen=True, slots=True)
class StoreClaim:
    """What is needed to raise a store's generation.

    Attributes:
        storage: the store without the check of its marker.
        place: the place of the keys according to the settings; None: do not compare it.
        raised_by: host and database that are written into the marker.
    """

    generations: StoreGenerations
    storage: RemoteStorage
    place: StorePlace | None
    raised_by: Callable[[], RaisedBy]
    clock: Clock
    random_bytes: Callable[[int], bytes]
    observe: Callable[[ClaimStep], None]

    def raise_generation(self, *, first_place: bool = False) -> StoreMarker:
        """Raise the generation, and return the marker that the store has then.

        Args:
            first_place: record the place if none is recorded, as segments were verified there.

        Raises:
            ForeignStoreError: another database has raised it since, the store or the place is another one, or no place
                is recorded.
            RemoteStorageUnavailableError, MetadataUnavailableError: the next call continues.
        """
        token = Uuid.random(self.random_bytes)
        for _ in range(MOST_ROUNDS):
            accepted = self.generations.accepted()
            if accepted.places or not first_place:
                accepted.require_place(self.place)
            proposed = self.generations.propose(token, self.place)
            self.observe(ClaimStep.PENDING_STORED)
            completed = self.complete(proposed)
            if proposed.pending is not None and proposed.pending.token == str(token):
                return completed
        raise RemoteStorageUnavailableError(f"{MOST_ROUNDS} other runs that plan were faster")

    def take_over(self, found: StoreMarker, *, author: str) -> StoreMarker:
        """Make this database the owner of the store, whose marker is `found`, with the next generation.

        A crash leaves the store with its previous owner or with this database; the next call continues. If neither the
        marker nor the database has a place, none is recorded.

        Raises:
            ForeignStoreError: it is another store, the settings name another place, or the other database has used the
                store since `found` was read.
        """
        accepted = self.generations.accepted()
        if accepted.accepts(found):
            return self.raise_generation()
        if not found.is_of_the_same_store(accepted.current):
            raise ForeignStoreError(accepted.objection(found))
        place = self.place
        if found.place is None and not accepted.places:
            place = None
        elif found.place is None:
            accepted.require_place(place)
        elif place not in (None, found.place):
            raise ForeignStoreError(elsewhere(found.place, place))
        token = Uuid.random(self.random_bytes)
        proposed = self.generations.propose_over(found, token, place, author=author)
        self.observe(ClaimStep.PENDING_STORED)
        pending = proposed.pending
        if pending is None or self._replaced(found, pending, proposed.conditional) != pending:
            raise ForeignStoreError(
                f"the store was used while it was taken over: it was at generation {found.generation}. Stop what uses"
                " the other database, and call ./tiering take-over-store again"
            )
        own = self._settled(pending)
        if own != pending:
            raise ForeignStoreError(
                f"the store was taken over twice at once: this database is at generation {own.generation}. Call"
                " ./tiering take-over-store again"
            )
        return own

    def complete(self, proposed: AcceptedMarkers) -> StoreMarker:
        """Write the pending marker, and settle it; another process may do the same concurrently.

        Returns:
            The database's own marker afterwards.

        Raises:
            ForeignStoreError: the store has neither this marker nor the previous one.
        """
        pending = proposed.pending
        if pending is None:
            return proposed.current
        if self.place is not None and (pending.place not in (None, self.place) or leaves(proposed)):
            raise ForeignStoreError(
                f"a move of the store to {pending.place} was begun, the settings name {self.place}: continue it with"
                " ./tiering relocate-store. Nothing is written or deleted"
            )
        found = self._replaced(proposed.current, pending, proposed.conditional)
        if found == pending:
            return self._settled(pending)
        now = self.generations.accepted()
        if now.pending == pending:
            raise ForeignStoreError(proposed.objection(found))
        return now.current

    def _settled(self, pending: StoreMarker) -> StoreMarker:
        self.observe(ClaimStep.MARKER_WRITTEN)
        settled = self.generations.settle(pending)
        self.observe(ClaimStep.SETTLED)
        return settled.current

    def _replaced(self, expected: StoreMarker, pending: StoreMarker, conditional: bool | None) -> StoreMarker | None:
        """Replace `expected` by `pending`; return the marker that the store has then."""
        if conditional is None:
            found = self.storage.read_marker()
            if found not in (expected, pending):
                return found
            conditional = self.storage.replaces_conditionally()
            self.generations.record_conditional_writes(conditional)
        written = replace(pending, raised_by=self.raised_by())
        return self.written(self.storage, expected, written, conditional=conditional)

    def written(
        self, storage: RemoteStorage, expected: StoreMarker, wanted: StoreMarker, *, conditional: bool
    ) -> StoreMarker | None:
        """Replace `expected` by `wanted`; return the marker then, read after a wait if the write was unconditional."""
        found = storage.replace_marker(expected, wanted, conditional=conditional)
        if found == wanted and not conditional:
            self.clock.sleep(SETTLE_SECONDS)
            found = storage.read_marker()
        return found


def leaves(accepted: AcceptedMarkers) -> bool:
    """Return whether the pending place has another URL, so that the marker of the old place is raised first."""
    old, new = accepted.current.place, None if accepted.pending is None else accepted.pending.place
    return old is not None and new is not None and old.url != new.url


@dataclass(frozen=True, slots=True)
class StoreMove:
    """What is needed to move a store.

    Attributes:
        claim: its storage is that of the new place.
        open_place: opens the storage of another place, for its marker alone, without the check of the marker.
    """

    claim: StoreClaim
    open_place: Callable[[StorePlace], RemoteStorage]

    def run(self, place: StorePlace, *, author: str, require_idle: Callable[[], None] = lambda: None) -> StoreMarker:
        """Make `place`, which the claim's storage opens, the place of the keys with the next generation.

        The caller has proved that the objects are there. A crash leaves the old place or the new one in force; the next
        call continues.

        A place with another URL has another marker. The marker of the old place is raised first, on the condition that
        it is this database's: so a copy of the database cannot leave a place that it does not own, and processes that
        still use the old place are refused. Then the new place gets its marker.

        Args:
            place: the new place.
            author: who moves the store, for the event.
            require_idle: raises if a copy or deletion is under way; called first, and again before the new place is in
                force.

        Raises:
            ForeignStoreError: the old or the new place has the marker of another database, or the old one cannot be
                read although both name the same objects.
        """
        require_idle()
        for _ in range(MOST_ROUNDS):
            accepted = self.claim.generations.accepted()
            left, found = self._left(accepted, place), self.claim.storage.read_marker()
            self._require_ours(accepted, found, left, place)
            pending = accepted.pending
            if pending is None or pending.place != place:
                if self._completed_before(accepted, found, left):
                    continue
                token = Uuid.random(self.claim.random_bytes)
                moving = self.claim.generations.propose_move(token, place, replaces=pending, author=author)
                self.claim.observe(ClaimStep.PENDING_STORED)
                pending = moving.pending
                if pending is None or pending.place != place:
                    continue
                require_idle()
            else:
                moving = accepted
            if left is not None and left.found is not None:
                self._raise_left(left.storage, left.found, pending, accepted)
            own_pending = replace(pending, raised_by=self.claim.raised_by())
            if found is None:
                self.claim.storage.create_marker(own_pending)
            elif not accepted.accepts(found):
                self.claim.written(self.claim.storage, found, own_pending, conditional=False)
            require_idle()
            own = replace(self.claim, place=None).complete(moving)
            if own.place != place:
                raise ForeignStoreError(
                    f"the store was moved twice at once, to {own.place}: call ./tiering relocate-store again"
                )
            return own
        raise RemoteStorageUnavailableError(f"{MOST_ROUNDS} other runs that plan were faster")

    def _left(self, accepted: AcceptedMarkers, place: StorePlace) -> "_Left | None":
        """Open the old place with its marker; None if both places have the same URL, and so the same marker."""
        old = accepted.current.place
        if old is None:
            raise ForeignStoreError(NOT_RECORDED)
        if old.url == place.url:
            return None
        try:
            storage = self.open_place(old)
            return _Left(old, storage, storage.read_marker())
        except RemoteStoreMissingError:
            return _Left(old, self.claim.storage, None)

    def _require_ours(
        self, accepted: AcceptedMarkers, found: StoreMarker | None, left: "_Left | None", place: StorePlace
    ) -> None:
        """Raise ForeignStoreError if the new place, or the old one, has the marker of another database."""
        if left is not None and left.found is not None and not accepted.accepts(left.found):
            raise ForeignStoreError(
                f"in {left.place}, which is left: {accepted.objection(left.found)}. To own it, set remote_storage to"
                " it first"
            )
        if found is not None and not accepted.accepts(found):
            # A marker that names a place with another URL claims ownership of that place, not of this one.
            points_away = found.place is not None and found.place.url != place.url
            is_owner_of_left = left is not None and left.found is not None
            if not (found.is_of_the_same_store(accepted.current) and points_away and is_owner_of_left):
                raise ForeignStoreError(accepted.objection(found))
        if left is not None and left.found is None and not accepted.accepts(found) and place.overlaps(left.place):
            raise ForeignStoreError(
                f"{left.place} and {place} name the same objects, and there is no _tiering-store.json in the first: it"
                " may belong to another database. Mount it or restore its marker, and call ./tiering relocate-store"
                " again. Nothing was changed"
            )

    def _completed_before(self, accepted: AcceptedMarkers, found: StoreMarker | None, left: "_Left | None") -> bool:
        """Complete a generation that was pending before this move; return whether there was one to complete."""
        pending = accepted.pending
        if pending is None:
            return False
        at = self.claim.storage if left is None or left.found is None else left.storage
        marker = found if left is None or left.found is None else left.found
        if left is not None and leaves(accepted):
            if marker == pending:
                raise ForeignStoreError(
                    f"a move of the store to {pending.place} was begun: set remote_storage to it and complete it with"
                    " ./tiering relocate-store, then move the store from there"
                )
            return False
        if marker is None:
            return False
        replace(self.claim, storage=at, place=None).complete(accepted)
        return True

    def _raise_left(
        self, storage: RemoteStorage, found: StoreMarker, pending: StoreMarker, accepted: AcceptedMarkers
    ) -> None:
        """Raise the marker of the old place, so that processes that still use it are refused."""
        if found == pending:
            return
        conditional = accepted.conditional
        if conditional is None:
            conditional = storage.replaces_conditionally()
        written = replace(pending, raised_by=self.claim.raised_by())
        left_behind = self.claim.written(storage, found, written, conditional=conditional)
        if left_behind != pending:
            raise ForeignStoreError(self.claim.generations.accepted().objection(left_behind))


@dataclass(frozen=True, slots=True)
class _Left:
    """The old place of a store that moves; `found` is its marker, None if it has none any more."""

    place: StorePlace
    storage: RemoteStorage
    found: StoreMarker | None
