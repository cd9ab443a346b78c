"""What a key says before any layout is asked: whether it is one of our own, and which segment id it names."""

import re
from typing import Final

from include.tiering.remote_storage.marker import MARKER_KEY

_PROBE: Final = re.compile(r"_tiering-probe-[0-9a-f]{16}\Z")
_SEGMENT_FILE: Final = re.compile(r"(?:.*/)?[0-9]{20}-([A-Za-z0-9_-]{22})\.[A-Za-z_-]+\Z", re.DOTALL)


def is_own(key: str) -> bool:
    """The store's marker, or what a check that the store can be written leaves for a moment."""
    return key == MARKER_KEY or _PROBE.match(key) is not None


def named_segment_id(key: str) -> str | None:
    """The 22 characters that stand where every layout puts the id of a segment, under whatever prefix:
    ``…/<20 digits>-<id>.<suffix>``. None if there are none; then no segment of ours can be meant."""
    found = _SEGMENT_FILE.match(key)
    return None if found is None else found[1]
