"""Whether a plan takes so much that a person has to agree: sums over rows, without what was deleted before. A right one
asks at least then.

It is asked when the plan is stored, and again in the moment in which the limit reads its totals. What another run began
to delete before that moment was that run's question: this one can delete it no second time, however old its plan is.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from include.tiering.model.retention import DeletionReason
from tests.simulation.invariants.rows import FINISHED, GONE
from tests.simulation.world.deployment import MIN_BYTES, TOTAL_MAX_BYTES

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_MAX_SHARE: Final = 0.2
_MAX_WHOLE_TOPICS: Final = 1


def why_to_ask(watch: "Watch", expirations: Sequence[Any]) -> str:
    """By the rows as they are now; empty if nothing speaks for it."""
    planned: dict[str, int] = defaultdict(int)
    finished: dict[str, int] = defaultdict(int)
    for expiration in expirations:
        topic_id = str(expiration.topic_id_partition.topic_id)
        for one in expiration.deletions:
            row = watch.rows.known.get(str(one.segment_id.id))
            is_finished = row is not None and row.state == FINISHED
            finished[topic_id] += is_finished
            is_superseded = one.reason == DeletionReason.SUPERSEDED and row is not None and row.state != GONE
            if is_finished or is_superseded:
                planned[topic_id] += one.size_bytes
    stored: dict[str, int] = defaultdict(int)
    there: dict[str, int] = defaultdict(int)
    for row in watch.rows.known.values():
        if row.state != GONE:
            stored[row.topic_id] += row.size_bytes
            there[row.topic_id] += row.state == FINISHED
    for topic_id, size_bytes in planned.items():
        if size_bytes > MIN_BYTES and size_bytes > _MAX_SHARE * stored[topic_id]:
            return f"{size_bytes} of {stored[topic_id]} bytes of {topic_id} go"
    small = [one for topic_id, one in planned.items() if one > _MAX_SHARE * stored[topic_id]]
    if sum(small) > TOTAL_MAX_BYTES:
        return f"{sum(small)} bytes of {len(small)} topics go"
    whole = [topic_id for topic_id, segments in finished.items() if segments and segments == there[topic_id]]
    return f"{len(whole)} topics lose everything" if len(whole) > _MAX_WHOLE_TOPICS else ""
