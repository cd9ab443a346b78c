"""Work spread among tasks by how much there is to read."""

import heapq
from collections.abc import Sequence

from include.tiering.verification.verify_segments import ToMeasure


def spread(wanted: Sequence[ToMeasure], tasks: int) -> list[list[ToMeasure]]:
    """At most `tasks` shares of about the same bytes, none of them empty; each in the order of `wanted`.

    The largest first, each to the task that has the least: no share exceeds another by more than one segment.
    """
    loads = [(0, number) for number in range(tasks)]
    task_of: dict[int, int] = {}
    for position in sorted(range(len(wanted)), key=lambda each: -wanted[each].planned_bytes):
        load_bytes, number = loads[0]
        task_of[position] = number
        heapq.heapreplace(loads, (load_bytes + wanted[position].planned_bytes, number))
    shares: list[list[ToMeasure]] = [[] for _ in range(tasks)]
    for position, one in enumerate(wanted):
        shares[task_of[position]].append(one)
    return [share for share in shares if share]
