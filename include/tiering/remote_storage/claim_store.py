"""Raise the generation of the store: the proof that this database, and no copy of it, owns the store now. And move it.

Every run that plans copies or deletions begins with it. The next generation is drawn with a random token, so a copy of
the database that raises it too writes another marker, and one of both is refused.

    step            done when it is reached               a crash right after it leaves       who goes on
    (begun)         nothing                               the generation of before            -
    PENDING_STORED  the next generation is pending in     the marker of before, which is      the next run that
                    the database                          accepted still                      plans, in any process
    MARKER_WRITTEN  the store's marker says it, replaced  a marker that is accepted, because  the same
                    on the condition that it was the      it is pending
                    expected one
    SETTLED         it is the database's own, nothing is  as the next run finds it            -
                    pending

The store's own write is one step: S3 replaces an object or does not, `remote_storage.file.store` says the same of a
file. No request is sent inside a transaction. What is pending is the same for every process of this database, so each
may go on with what another one began, and both succeed. It proves nothing about a copy of the database that was made
meanwhile and has the same pending generation: so a run ends only with a generation that it drew itself.

A move lets the keys of a store lie in another place, where its objects are already:

    step            what holds                            who goes on after a crash
    PENDING_STORED  the place of before; the new one is   the next move to the same place; a plan is refused
                    pending, with the next generation
    (left raised)   the old marker, behind another URL,   the same
                    is of the pending generation
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
"""How long a store that replaces without a condition is given until it is read back."""
MOST_ROUNDS: Final = 100


class ClaimStep(StrEnum):
    """Named points, in order; reported after each is done."""

    PENDING_STORED = "pending stored"
    MARKER_WRITTEN = "marker written"
    SETTLED = "settled"


class StoreGenerations(Protocol):
    """The row of one store in the database. Each method is one transaction."""

    def accepted(self) -> AcceptedMarkers:
        """What the marker may say now. Raises MetadataUnavailableError without a store."""
        ...

    def propose(self, token: Uuid, place: StorePlace | None) -> AcceptedMarkers:
        """Let the next generation be pending, with this token and place, unless one is. Returns what holds."""
        ...

    def propose_over(
        self, found: StoreMarker, token: Uuid, place: StorePlace | None, *, author: str
    ) -> AcceptedMarkers:
        """Let a generation be pending that follows `found` and our own, whatever is; with an event."""
        ...

    def propose_move(
        self, token: Uuid, place: StorePlace, *, replaces: StoreMarker | None, author: str
    ) -> AcceptedMarkers:
        """Let the next generation be pending in another place, with an event, unless something else than `replaces` is
        pending; whether writes are conditional there, nobody knows. Returns what holds.
        """
        ...

    def settle(self, pending: StoreMarker) -> AcceptedMarkers:
        """What is pending becomes our own, if it is `pending` still. Returns what holds."""
        ...

    def record_conditional_writes(self, heeded: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreClaim:
    """All that raising a generation touches.

    Attributes:
        storage: not guarded.
        place: where the settings say that keys lie; None: nothing is compared with it.
        raised_by: of the marker that is written.
    """

    generations: StoreGenerations
    storage: RemoteStorage
    place: StorePlace | None
    raised_by: Callable[[], RaisedBy]
    clock: Clock
    random_bytes: Callable[[int], bytes]
    observe: Callable[[ClaimStep], None]

    def raise_generation(self, *, first_place: bool = False) -> StoreMarker:
        """Returns the marker that the store has now.

        Args:
            first_place: the place may be recorded where none is, as segments were looked at there.

        Raises:
            ForeignStoreError: another database has raised it since, the store or the place is another one, or nothing
                says where keys lie.
            RemoteStorageUnavailableError, MetadataUnavailableError: the next call goes on.
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
        """Let this database own the store, whose marker is `found`, from the next generation on. A crash leaves the
        store as it was, or ours; the next call goes on. Where neither side says where keys lie, nothing does after it.

        Raises:
            ForeignStoreError: it is another store, keys lie in another place than the settings name, or the other
                database has used it since `found` was read.
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
        """Write the marker that is pending, and settle it; fine if another process does the same. Returns what is the
        database's own then.

        Raises:
            ForeignStoreError: the store has neither this marker nor the one before.
        """
        pending = proposed.pending
        if pending is None:
            return proposed.current
        if self.place is not None and (pending.place not in (None, self.place) or leaves(proposed)):
            raise ForeignStoreError(
                f"a move of the store to {pending.place} was begun, the settings name {self.place}: go on with"
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
        """What the store has after `pending` was to take the place of `expected`."""
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
        """What `storage` has after `wanted` was to take the place of `expected`; without a condition after a while."""
        found = storage.replace_marker(expected, wanted, conditional=conditional)
        if found == wanted and not conditional:
            self.clock.sleep(SETTLE_SECONDS)
            found = storage.read_marker()
        return found


def leaves(accepted: AcceptedMarkers) -> bool:
    """Whether what is pending is behind another URL, so that the marker of the old one comes first."""
    old, new = accepted.current.place, None if accepted.pending is None else accepted.pending.place
    return old is not None and new is not None and old.url != new.url


@dataclass(frozen=True, slots=True)
class StoreMove:
    """All that a move touches.

    Attributes:
        open_place: the storage of another place, for its marker alone, not guarded.
    """

    claim: StoreClaim
    open_place: Callable[[StorePlace], RemoteStorage]

    def run(self, place: StorePlace, *, author: str, require_idle: Callable[[], None] = lambda: None) -> StoreMarker:
        """Let keys lie in `place`, which the claim's storage opens, from the next generation on. That the objects are
        there has been proved. A crash leaves the place of before, or the new one; the next call goes on.

        Behind another URL there is another marker. That of the place that is left is raised first, on the condition
        that it is this database's: so a copy of the database cannot leave a place that it does not own, and whoever
        uses the old one is refused. Then the new place gets its own.

        Args:
            require_idle: raises if something copies or deletes; asked first, and before the new place holds.

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
        """The place that is left, where it has a marker of its own; None where it has the same as the new one."""
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
        """The marker of the new place, and that of the old one where it is another, may not be another database's."""
        if left is not None and left.found is not None and not accepted.accepts(left.found):
            raise ForeignStoreError(
                f"in {left.place}, which is left: {accepted.objection(left.found)}. To own it, set remote_storage to"
                " it first"
            )
        if found is not None and not accepted.accepts(found):
            # One that says that keys lie behind another URL makes nobody the owner here.
            points_away = found.place is not None and found.place.url != place.url
            is_owner_of_left = left is not None and left.found is not None
            if not (found.is_of_the_same_store(accepted.current) and points_away and is_owner_of_left):
                raise ForeignStoreError(accepted.objection(found))
        if left is not None and left.found is None and not accepted.accepts(found) and place.overlaps(left.place):
            raise ForeignStoreError(
                f"{left.place} and {place} name the same objects, and there is no _tiering-store.json in the first: it"
                " may belong to another database. Mount it or bring its marker back, and call ./tiering relocate-store"
                " again. Nothing was changed"
            )

    def _completed_before(self, accepted: AcceptedMarkers, found: StoreMarker | None, left: "_Left | None") -> bool:
        """Whether what was pending before a move, of the old place or to a third one, has been written now."""
        pending = accepted.pending
        if pending is None:
            return False
        at = self.claim.storage if left is None or left.found is None else left.storage
        marker = found if left is None or left.found is None else left.found
        if left is not None and leaves(accepted):
            if marker == pending:
                raise ForeignStoreError(
                    f"a move of the store to {pending.place} was begun: set remote_storage to it and go on with"
                    " ./tiering relocate-store, then move on from there"
                )
            return False
        if marker is None:
            return False
        replace(self.claim, storage=at, place=None).complete(accepted)
        return True

    def _raise_left(
        self, storage: RemoteStorage, found: StoreMarker, pending: StoreMarker, accepted: AcceptedMarkers
    ) -> None:
        """Whoever uses the place that is left is refused from here on."""
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
    """The place that a store leaves; `found` None: there is no marker any more."""

    place: StorePlace
    storage: RemoteStorage
    found: StoreMarker | None
