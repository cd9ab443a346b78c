"""Who may act: leases, tokens, releases, and for how long by the clock of whoever asked."""

from typing import TYPE_CHECKING, Any

from include.tiering.model.ownership import Fence, LeaseRole
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.invariants.rows import Row
from tests.simulation.kernel.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_LEASES = "SELECT topic_id, partition, role, token, expires_at_ms, run_id, batch_id FROM leases"
_OWNER = "SELECT owner FROM topics WHERE topic_id = ?"
_RELEASING = frozenset({"deletions.claim", "removals.claim"})
_LEASING = frozenset({"work.claim", "work.renew", "work.release", "publications.claim", "handovers.claim", *_RELEASING})
_RELEASE = """
    SELECT r.needs_approval, a.plan_hash = r.plan_hash
    FROM runs r LEFT JOIN approvals a ON a.run_id = r.run_id WHERE r.run_id = ?
"""
_MOST_AHEAD_MS = 90_000
_CHANGING = frozenset({"metadata.add_segment", "metadata.update_segment", "metadata.advance_deletion"})

_REMOVING = frozenset({"removals.mark_for_deletion", "removals.record_outcomes"})


class Leases:
    """Leases of one world, as they were given."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._newest: dict[tuple[TopicIdPartition, LeaseRole], tuple[int, Process]] = {}
        self._holders: dict[tuple[TopicIdPartition, LeaseRole, int], Process] = {}
        """Who got which token."""
        self._highest: dict[tuple[TopicIdPartition, LeaseRole], int] = {}
        """Tokens of the database's life, which a restore begins anew."""
        self._given: set[tuple[TopicIdPartition, LeaseRole, int]] = set()
        """Tokens of all its lives."""
        self._before: dict[tuple[TopicIdPartition, LeaseRole], tuple[int, int, str, str]] = {}
        self._asked_at: dict[Process, float] = {}
        self._valid_until: dict[Process, float] = {}
        self._saw_no_holder: set[tuple[Process, TopicIdPartition]] = set()
        self._given_of_fenced: set[tuple[TopicIdPartition, LeaseRole, int]] = set()
        self._of_before: set[Process] = set()
        """Who has claimed nothing since the database was restored."""
        self._version = -1
        self._found: dict[tuple[TopicIdPartition, LeaseRole], tuple[int, int, str, str]] = {}

    def forget(self) -> None:
        """The database was restored: the rows may be others than before.

        The newest holder is the one whom the backup knows. Leases that were given after it was taken are no more.
        """
        self._version = -1
        self._of_before.update(process for _, process in self._newest.values())
        self._highest = {key: row[0] for key, row in self._rows().items()}
        holders = {key: (token, self._holders.get((*key, token))) for key, token in self._highest.items()}
        self._newest = {key: (token, holder) for key, (token, holder) in holders.items() if holder is not None}

    def is_of_before(self, process: Process | None) -> bool:
        """Its lease is from before a restore of the database, if it has one."""
        return process in self._of_before

    def of_another_database(self) -> None:
        """Who holds them is not known."""
        self._newest.clear()
        self._given.clear()
        self._before.clear()

    def before_call(self, process: Process, label: str) -> None:
        """A lease is valid from before the request that got it, by the clock of who asked."""
        if label in _LEASING:
            self._asked_at[process] = process.monotonic()

    def after_call(
        self, process: Process, label: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, *, wrote: bool
    ) -> None:
        """`wrote`: the call changed a row."""
        if label in _LEASING:
            lease_ms: int | None = kwargs.get("lease_ms")
            if lease_ms is not None and result is not None:
                self._valid_until[process] = self._asked_at[process] + lease_ms / 1000
            if result is not None and label.endswith(".claim"):
                self._tell_lease(process, result.fence)
                self._claimed(process, result.fence)
            if label in _RELEASING and result is not None:
                self._require_released(result.run_id)
            self._before = self._rows()
        elif label == "work.holder" and result is None:
            self._saw_no_holder.add((process, args[0]))
        fence = args[0].fence if label in _REMOVING else kwargs.get("fence")
        if fence is not None and (label in _CHANGING or label in _REMOVING) and wrote:
            self._fenced_change(process, fence, label)

    def is_valid(self, process: Process) -> bool:
        """Whether what this process got last still holds, by its own clock."""
        return process.monotonic() <= self._valid_until.get(process, 0.0)

    def is_idle(self, partition: TopicIdPartition, role: LeaseRole, token: int) -> bool:
        """It was given when the topic was being handed over already: its holder is told so before it does anything."""
        return (partition, role, token) in self._given_of_fenced

    def newest(self, partition: TopicIdPartition, role: LeaseRole) -> Process | None:
        """Who got it last."""
        found = self._newest.get((partition, role))
        return None if found is None else found[1]

    def abandoned(self, row: Row, process: Process | None) -> None:
        """A copy that was not FINISHED begins to be deleted. Its own holder may do that, others once it is gone."""
        partition = row.topic_id_partition
        lease = self._rows().get((partition, LeaseRole.COPY))
        newest = self._newest.get((partition, LeaseRole.COPY))
        if process is None or lease is None or newest is None or newest[1] is process:
            return
        is_live = lease[1] > self._world.scheduler.database_ms and lease[0] == row.fencing_token
        if is_live and (process, partition) not in self._saw_no_holder:
            self._watch.broken(
                "a copy under a live lease is not abandoned", f"{row} by {process.name}, {newest[1].name} copies"
            )

    def _rows(self) -> dict[tuple[TopicIdPartition, LeaseRole], tuple[int, int, str, str]]:
        version = self._world.db.version("leases")
        if version == self._version:
            return self._found
        self._version = version
        found = self._found = {}
        for topic_id, number, role, token, expires, run_id, batch_id in self._world.db.rows(_LEASES):
            found[TopicIdPartition(Uuid.parse(topic_id), number, "x"), LeaseRole(role)] = (
                token,
                expires,
                run_id,
                batch_id,
            )
        return found

    def _tell_lease(self, process: Process, fence: Fence) -> None:
        partition = fence.topic_id_partition
        self._world.note(process.name, "gets a lease", f"{partition} to {fence.role}, token {fence.token}", "")

    def _claimed(self, process: Process, fence: Fence) -> None:
        self._of_before.discard(process)
        key = (fence.topic_id_partition, fence.role)
        before = self._before.get(key)
        row = self._rows()[key]
        if before is not None and not self._watch.foreign_history:
            _, expires, run_id, batch_id = before
            is_own = (run_id, batch_id) == row[2:]
            now_ms = self._world.scheduler.database_ms
            # One that ends far ahead was given by a clock that was ahead.
            if now_ms < expires <= now_ms + _MOST_AHEAD_MS and not is_own:
                self._watch.broken("a live lease is not given away", f"{fence.topic_id_partition} to {process.name}")
        self._require_new(key, fence.token)
        self._newest[key] = (fence.token, process)
        self._holders[*key, fence.token] = process
        if self._world.db.rows(_OWNER, str(fence.topic_id_partition.topic_id)) == [("handing-over",)]:
            self._given_of_fenced.add((*key, fence.token))

    def _require_new(self, key: tuple[TopicIdPartition, LeaseRole], token: int) -> None:
        """Above all of this life of the database, and of none of its lives.

        Across a restore order is no safety: a fence asks for one token, and where the clock that was ahead is right
        again, those of before the restore are the higher ones.
        """
        highest = self._highest.get(key, 0)
        if token <= highest:
            self._watch.broken("tokens ascend", f"{key[0]} {key[1]}: {token} after {highest}")
        if (*key, token) in self._given:
            self._watch.broken("no token is given twice", f"{key[0]} {key[1]}: {token}")
        self._highest[key] = token
        self._given.add((*key, token))

    def _require_released(self, run_id: str) -> None:
        needs_approval, is_approved = self._world.db.rows(_RELEASE, run_id)[0]
        if needs_approval != 0 and not is_approved:
            self._watch.broken("nothing is deleted before the deletion limit allows it", f"run {run_id} was claimed")
        if run_id in self._watch.must_ask and not is_approved:
            self._watch.broken("large deletions need an approval", f"{run_id}: {self._watch.must_ask[run_id]}")

    def _fenced_change(self, process: Process, fence: Fence, label: str) -> None:
        newest = self._newest.get((fence.topic_id_partition, fence.role))
        if newest is None or newest != (fence.token, process):
            holder = "nobody" if newest is None else f"{newest[1].name} with token {newest[0]}"
            self._watch.broken(
                "two lease holders never act at once",
                f"{process.name} changed {fence.topic_id_partition} by {label} with token {fence.token};"
                f" the newest holder is {holder}",
            )
