"""Move a store: let its keys lie in another place, where its objects are already.

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

from include.tiering.errors import ForeignStoreError, RemoteStorageUnavailableError, RemoteStoreMissingError
from include.tiering.model.ids import Uuid
from include.tiering.model.ownership import NOT_RECORDED, AcceptedMarkers, StoreMarker, StorePlace
from include.tiering.remote_storage.claim_store import MOST_ROUNDS, ClaimStep, StoreClaim, leaves
from include.tiering.remote_storage.contract import RemoteStorage


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
