"""Raise the generation of the store: the proof that this database, and no copy of it, owns the store now.

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

The store's own write is one step: S3 replaces an object or does not, `remote_storage.file` says the same of a file.
No request is sent inside a transaction. What is pending is the same for every process of this database, so each may go
on with what another one began, and both succeed. It proves nothing about a copy of the database that was made
meanwhile and has the same pending generation: so a run ends only with a generation that it drew itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError, RemoteStorageUnavailableError
from include.tiering.model.ids import Uuid
from include.tiering.model.ownership import AcceptedMarkers, RaisedBy, StoreMarker, StorePlace, elsewhere
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
        pending; whether writes are conditional there, nobody knows. Returns what holds."""
        ...

    def settle(self, pending: StoreMarker) -> AcceptedMarkers:
        """What is pending becomes our own, if it is `pending` still. Returns what holds."""
        ...

    def remember_conditional_writes(self, heeded: bool) -> None: ...


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
            self.generations.remember_conditional_writes(conditional)
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
