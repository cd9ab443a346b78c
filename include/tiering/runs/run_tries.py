"""Ids of planned runs whose planning is tried again: `RUN.2`, `RUN.3`, each with a plan of its own.

A run may have a name that ends so itself. Then its first try ends in `.1`, and no id is that of two tries.
"""

import re
from typing import Final

_NUMBER: Final = re.compile(r"\.([0-9]{1,9})\Z")


def id_of_try(run_id: str, number: int) -> str:
    """Of the try with this number, from 1 on."""
    return run_id if number == 1 and not _NUMBER.search(run_id) else f"{run_id}.{number}"


def is_try_of(run_id: str, planned: str) -> bool:
    """Whether a planned run is a try of this one."""
    numbered = _NUMBER.fullmatch(planned, len(run_id)) if planned.startswith(run_id) else None
    number = 1 if numbered is None else int(numbered[1])
    return planned == id_of_try(run_id, number)
