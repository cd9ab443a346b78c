"""Of databases that use one store, one writes: whichever planned first since the other was copied from it, until a
person lets the other one take over. So does one that was restored from a backup: nothing before it was taken over.

What is asked is who planned and who wrote, not which numbers a marker holds.
"""

from typing import TYPE_CHECKING, Any, Final

from include.tiering.remote_storage.store_ownership import MARKER_KEY, marker_from_bytes
from tests.simulation.kernel.scheduler import Process, Task
from tests.simulation.world.object_store import StoreState
from tests.simulation.world.sides import Side

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_PENDING: Final = "SELECT pending_token FROM stores WHERE pending_token IS NOT NULL"
_TOKENS: Final = "SELECT generation_token, pending_token FROM stores"
_PLANS: Final = frozenset({"work.save_plan", "deletions.save_plan", "removals.save_plan"})
BEHIND: Final = "a database that is behind writes nothing"
STILL_NAMED: Final = "no backup that would be accepted names what is deleted"


class Ownership:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._planned_since: Side | None = None
        """Which of two planned first since they were one."""
        self._behind: dict[Side, int] = {}
        """Since which step."""
        self._only_later_ones: set[Side] = set()
        """Restored while processes ran: what those know of the store is right."""
        self._marker_read: dict[Process, int] = {}
        self._marker_read_by: dict[Task | None, int] = {}
        """By thread: what one transfer of a batch was told of the marker, another one in flight does not know yet."""
        self._wrote: dict[Side, int] = {}
        """The step at which a database replaced the marker last."""
        self._shared: set[str | None] = set()
        """Tokens of generations that were pending when the database was copied: its copies may go on with them, too."""
        self._old_copies: set[tuple[Side, int]] = set()
        """Which database was let go on with which other place."""
        self._backups: list[tuple[set[str | None], set[str]]] = []
        """Of each copy of the rightful database the tokens that it accepts, and what it knows to be in the store."""
        self._uses = 0
        self.last_use = 0
        """Of the rightful database: which of all uses of the store."""

    def is_behind(self, side: Side) -> bool:
        return side in self._behind

    def is_refused(self, side: Side) -> bool:
        """What a person sees: the marker has a token that this database does not know."""
        token = self._token()
        return token is not None and not any(token in row for row in side.db.rows(_TOKENS))

    def _token(self) -> str | None:
        marker = self._world.store.objects.get(MARKER_KEY)
        return None if marker is None else marker_from_bytes(marker).token

    def split(self) -> None:
        """Another database is a copy of the rightful one as of now."""
        self._planned_since = None
        self.backed_up()

    def backed_up(self) -> None:
        self._shared.update(token for (token,) in self._world.db.rows(_PENDING))
        tokens = {token for row in self._world.db.rows(_TOKENS) for token in row}
        self._backups.append((tokens, {str(segment_id) for segment_id in self._world.side.finished_ids()}))

    def joined(self) -> None:
        """There is one again."""
        self._planned_since = None

    def restored(self, last_use: int) -> None:
        """The rightful database is as it was when that was its last use of the store."""
        if last_use != self.last_use:
            self._behind[self._world.side] = self._world.scheduler.steps
            self._only_later_ones.add(self._world.side)
            self.last_use = last_use

    def marker_read(self, process: Process) -> None:
        self._marker_read[process] = self._world.scheduler.steps
        self._marker_read_by[self._world.scheduler.current] = self._world.scheduler.steps

    def marker_written(self, process: Process | None, state: StoreState) -> None:
        """Created, or another one now."""
        if state is not self._world.store:
            if process is not None and self._watch.rows.known and not self._goes_on_elsewhere(process, state):
                self._watch.broken("no second marker appears where a store is known", f"{process.name} made a marker")
        elif process is not None and process.side is not None:
            self._wrote[process.side] = self._world.scheduler.steps
            token = marker_from_bytes(state.objects[MARKER_KEY]).token
            is_shared = token in self._shared
            knows_it = any(token in row for row in process.side.db.rows(_TOKENS))
            if process.name.startswith("taker"):
                self._taken_over(process.side, is_shared=is_shared)
            elif not is_shared:
                self._use(process, knows_it=knows_it)

    def _goes_on_elsewhere(self, process: Process, state: StoreState) -> bool:
        """A person took over an old copy of the store for a database that knew of nothing in it. Nothing can be lost by
        that: where the store is known its marker is of another generation, and this database is refused."""
        if process.name.startswith("taker") and not process.side.finished_ids():
            self._old_copies.add((process.side, id(state)))
        return (process.side, id(state)) in self._old_copies

    def called(self, process: Process, label: str, args: tuple[Any, ...]) -> None:
        if label in _PLANS and args[1]:
            self._planned(process)

    def object_changes(self, key: str, process: Process | None, what: str) -> None:
        """In the store; a marker is none."""
        if process is None or process.side is None or key == MARKER_KEY:
            return
        since = self._behind.get(process.side)
        if what == "deletes" and since is None and process.side is self._world.side:
            self._require_unnamed(key, process)
        if since is None or (process.side in self._only_later_ones and process.began_step < since):
            return
        if what == "stores":
            never = -1 if process in self._marker_read else since
            read = self._marker_read_by.get(self._world.scheduler.current, never)
        else:
            read = self._marker_read.get(process, since)
        if read >= since:
            self._watch.broken(BEHIND, f"{process.name} of {process.side} {what} {key}")

    def _require_unnamed(self, key: str, process: Process) -> None:
        segment_id, token = key.rpartition("/")[2][21:43], self._token()
        accepted = [finished for tokens, finished in self._backups if token in tokens - {None}]
        if any(segment_id in finished for finished in accepted):
            self._watch.broken(STILL_NAMED, f"{process.name} deletes {key}")

    def _planned(self, process: Process) -> None:
        side = process.side
        if (side, id(self._world.places.instead)) in self._old_copies:
            return  # The plan is of the other place: its marker has a generation that the store refuses.
        # What another one overtook between its claim and its plan is refused before it writes.
        if side in self._behind and process.began_step >= self._behind[side]:
            self._watch.broken(BEHIND, f"{process.name} of {side} stored a plan")
        if self._wrote.get(side, -1) < process.began_step:
            self._use(process, knows_it=True)

    def _use(self, process: Process, *, knows_it: bool) -> None:
        """It made the store its own by what a plan begins with; or it planned without."""
        side, other = process.side, self._world.other
        self._uses += 1
        if not knows_it:
            # It was begun before the database was restored.
            self._behind[side] = self._world.scheduler.steps
            self._only_later_ones.add(side)
        elif side is self._world.side:
            self.last_use = self._uses
        if other is None or self._planned_since is not None:
            return
        self._planned_since = side
        self._behind[other if side is self._world.side else self._world.side] = self._world.scheduler.steps
        if side is not self._world.side:
            self._world.change_sides()

    def _taken_over(self, side: Side, *, is_shared: bool) -> None:
        if is_shared:
            self._behind.clear()
            self._planned_since = None
            return
        self._uses += 1
        self.last_use = self._uses
        self._behind.pop(side, None)
        self._only_later_ones.discard(side)
        if self._world.other is None:
            return
        self._planned_since = side
        if side is not self._world.side:
            self._behind[self._world.side] = self._world.scheduler.steps
            self._world.change_sides()
        else:
            self._behind[self._world.other] = self._world.scheduler.steps
