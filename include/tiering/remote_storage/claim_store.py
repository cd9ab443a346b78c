"""Raise the generation of a store, which proves that this database, and no copy of it, owns the store; move a store.

Every run that plans copies or deletions raises the generation before it stores its plan; a dry run does not. A batch of
an expiration raises it again for each group of segments, before it deletes the group's first object. Each new
generation has a random token. If a copy of the database raises the generation too, its marker has another token, and
one of the two databases is refused.

    step            done when it is reached               a crash right after it leaves       who continues
    (begun)         nothing                               the previous generation             -
    PENDING_STORED  the next generation is pending in     the previous marker, which is       the next run that
                    the database                          still accepted                      plans, in any process
    MARKER_WRITTEN  the store's marker has the pending    a marker that is accepted, because  the same
                    generation; it replaced the           it is pending
                    marker of the previous generation
    SETTLED         the pending generation became the     the final state                     -
                    database's own, nothing is pending

The write of the marker is atomic in the store (for files see `remote_storage.file.store`). No request is sent to the
store inside a database transaction. All processes of this database see the same pending generation, so each process may
complete a generation that another process began, and both of them succeed. A copy of the database that was made while a
generation was pending has the same pending generation, so its completion does not tell the two databases apart:
therefore a claim continues until it has completed a generation whose token it drew itself.

A move changes the recorded place of a store's keys to another place, to which the objects were moved before:

    step            place that runs may use               who continues after a crash
    PENDING_STORED  the old place; the new place is       the next move to the same place; or a run that plans, if the
                    pending, with the next generation     settings name the new place, and its URL is the old one
    (left raised)   no place; the marker of the old       the next move to the same place; this step is done only if
                    place has the pending generation      the URLs differ and the old place has a marker
    MARKER_WRITTEN  the new place; its marker has the     as after PENDING_STORED
                    pending generation
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
"""Seconds to wait after an unconditional write of the marker, before the marker is read back."""
MOST_ROUNDS: Final = 100


class ClaimStep(StrEnum):
    """Steps of a claim, in order; each is reported after it is done."""

    PENDING_STORED = "pending stored"
    MARKER_WRITTEN = "marker written"
    SETTLED = "settled"


class StoreGenerations(Protocol):
    """The row of one store in the database. Each method is one transaction.

    Methods that propose or settle raise StateConflictError while the metadata are being rebuilt.
    """

    def accepted(self) -> AcceptedMarkers:
        """Return the markers that are accepted now. Raises MetadataUnavailableError if no store is recorded."""
        ...

    def propose(self, token: Uuid, place: StorePlace | None) -> AcceptedMarkers:
        """Make the next generation pending, with this token and place, unless a generation is pending.

        Returns:
            The markers that are accepted afterwards.
        """
        ...

    def propose_over(
        self, found: StoreMarker, token: Uuid, place: StorePlace | None, *, author: str
    ) -> AcceptedMarkers:
        """Make a generation pending that is one above both `found` and the database's; record an event.

        It replaces a generation that is pending already. The markers that are accepted afterwards are returned.
        """
        ...

    def propose_move(
        self, token: Uuid, place: StorePlace, *, replaces: StoreMarker | None, author: str
    ) -> AcceptedMarkers:
        """Make the next generation pending with another place; record an event; return the markers accepted afterwards.

        Nothing changes unless the pending marker is `replaces` (None: no marker is pending). Whether the new place
        supports conditional writes is recorded as unknown.
        """
        ...

    def settle(self, pending: StoreMarker) -> AcceptedMarkers:
        """Make `pending` the database's own generation if it is still pending; return the markers accepted then."""
        ...

    def record_conditional_writes(self, supported: bool) -> None:
        """Record whether the store can compare the version of an object as it replaces the object."""
        ...


@dataclass(frozen=True, slots=True)
class StoreClaim:
    """Raises the generation of a store.

    Attributes:
        storage: the store without the check of its marker.
        place: the place of the keys according to the settings; None: places are not compared.
        raised_by: returns host, database and time, which are written into the marker.
    """

    generations: StoreGenerations
    storage: RemoteStorage
    place: StorePlace | None
    raised_by: Callable[[], RaisedBy]
    clock: Clock
    random_bytes: Callable[[int], bytes]
    observe: Callable[[ClaimStep], None]

    def raise_generation(self, *, first_place: bool = False) -> StoreMarker:
        """Raise the generation, and return the database's marker afterwards.

        Args:
            first_place: if the database has no place, record that of the settings, at which the caller has checked
                the segments; without this, a database without a place is refused.

        Raises:
            ForeignStoreError: another database has raised the generation since this one did, the marker is missing or
                of another store, the settings name another place than the recorded one, no place is recorded, or a move
                is pending (unless the settings name its place and the URL stays the same).
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
        raise RemoteStorageUnavailableError(f"another run that plans was faster, {MOST_ROUNDS} times in succession")

    def take_over(self, found: StoreMarker, *, author: str) -> StoreMarker:
        """Make this database the owner of the store, whose marker is `found`, with the next generation.

        If `found` is this database's marker already, the generation is raised as usual. A crash leaves the store with
        its previous owner or with this database; the next call continues. If neither the database nor a foreign `found`
        has a place, none is recorded.

        Raises:
            ForeignStoreError: `found` is the marker of another store, the settings name another place, or the marker
                was removed or replaced after `found` was read, by the other database or by a second takeover. If
                `found` is this database's marker: as `raise_generation`.
            RemoteStorageUnavailableError, MetadataUnavailableError: the next call continues.
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
                f"the store was used while it was taken over: its generation was {found.generation} before. Stop what"
                " uses the other database, and call ./tiering take-over-store again"
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
            ForeignStoreError: the store has neither the pending marker nor the one before it, and the generation was
                not settled; or a move is pending, as for `raise_generation`.
        """
        pending = proposed.pending
        if pending is None:
            return proposed.current
        if self.place is not None and (pending.place not in (None, self.place) or leaves(proposed)):
            raise ForeignStoreError(
                f"a move of the store to {pending.place} was begun and is not complete, the settings name {self.place}:"
                " set remote_storage to the new place and call ./tiering relocate-store. Nothing is written or deleted"
            )
        found = self._replaced(proposed.current, pending, proposed.conditional)
        if found == pending:
            return self._settled(pending)
        now = self.generations.accepted()
        # The marker is foreign, unless another process of this database settled this generation or a later one.
        if now.pending == pending or now.current.generation < pending.generation:
            raise ForeignStoreError(proposed.objection(found))
        return now.current

    def _settled(self, pending: StoreMarker) -> StoreMarker:
        self.observe(ClaimStep.MARKER_WRITTEN)
        settled = self.generations.settle(pending)
        self.observe(ClaimStep.SETTLED)
        return settled.current

    def _replaced(self, expected: StoreMarker, pending: StoreMarker, conditional: bool | None) -> StoreMarker | None:
        """Replace `expected` by `pending`; return the marker that the store has then.

        If it is unknown whether the store compares versions (`conditional` is None), that is tested and recorded first.
        """
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
        """Replace `expected` by `wanted`; return the marker that the store has then.

        After an unconditional write the marker is read again `SETTLE_SECONDS` later.
        """
        found = storage.replace_marker(expected, wanted, conditional=conditional)
        if found == wanted and not conditional:
            self.clock.sleep(SETTLE_SECONDS)
            found = storage.read_marker()
        return found


def leaves(accepted: AcceptedMarkers) -> bool:
    """Return whether the pending place has another URL than the current place, whose marker is then raised first."""
    old, new = accepted.current.place, None if accepted.pending is None else accepted.pending.place
    return old is not None and new is not None and old.url != new.url


@dataclass(frozen=True, slots=True)
class StoreMove:
    """Moves a store to another place.

    Attributes:
        claim: its storage is that of the new place.
        open_place: opens the storage of another place, for its marker alone, without the check of the marker.
    """

    claim: StoreClaim
    open_place: Callable[[StorePlace], RemoteStorage]

    def run(self, place: StorePlace, *, author: str, require_idle: Callable[[], None] = lambda: None) -> StoreMarker:
        """Make `place` the place of the keys, with the next generation.

        The claim's storage must be open at `place`, and the caller must have proved that the objects are there. A crash
        leaves the old place, the new one or none in force; the next call continues.

        A place with another URL has a marker object of its own. Then the marker of the old place is raised first, if
        that place still has a marker, and on the condition that the marker is this database's: so a copy of the
        database cannot leave a place that it does not own, and processes that still use the old place are refused. The
        new place gets its marker after that.

        Args:
            place: the new place.
            author: who moves the store, for the event.
            require_idle: raises if a copy or deletion is under way. It is called at the beginning, again after this
                call has made the new place pending, and again before the move is completed.

        Raises:
            ForeignStoreError: the old or the new place has the marker of another database; neither place has this
                database's marker, and both may name the same objects; an earlier move to another place has already
                raised the marker of the old place, or a concurrent move was completed; or the database has no place.
            RemoteStorageUnavailableError: the store cannot be reached now, or other runs were faster each time; the
                next call continues.
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
                    f"the store was moved twice at once, now it is at {own.place}: call ./tiering relocate-store again"
                )
            return own
        raise RemoteStorageUnavailableError(f"another run that plans was faster, {MOST_ROUNDS} times in succession")

    def _left(self, accepted: AcceptedMarkers, place: StorePlace) -> "_Left | None":
        """Open the old place and read its marker; None if both places have the same URL, and so the same marker."""
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
        """Raise ForeignStoreError if the new place, or the old one, has or may have the marker of another database."""
        if left is not None and left.found is not None and not accepted.accepts(left.found):
            raise ForeignStoreError(
                f"in {left.place}, the place that the store leaves: {accepted.objection(left.found)}. To take that"
                " store over, set remote_storage to that place first"
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
        """Complete a generation that was pending before this move; return whether a generation was completed."""
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
        """Raise the marker of the old place to `pending`, so that processes that still use that place are refused."""
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
    """The old place of a store that moves; `found` is its marker, None if the marker or the place is missing."""

    place: StorePlace
    storage: RemoteStorage
    found: StoreMarker | None
