"""What a file store holds, told from names, sizes and manifests alone: no line of the project takes part."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KEY: Final = re.compile(
    r"(?P<topic>.+)-(?P<topic_id>[\w-]{22})/(?P<partition>\d+)/"
    r"(?P<start_offset>\d{20})-(?P<segment_id>[\w-]{22})\.(?P<kind>log|indexes|rsm-manifest)"
)
_KINDS: Final = {"log", "indexes", "rsm-manifest"}
_MARKER: Final = "_tiering-store.json"

PartitionName = tuple[str, int]
Recount = Mapping[PartitionName, Mapping[int | None, tuple[int, int]]]
"""Bytes and segments by leader epoch; None is the whole partition, where a segment that spans epochs counts once."""


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """One copied segment; `size_bytes` is the size of its `.log`, `leader_epochs` are those of its manifest."""

    partition: PartitionName
    segment_id: str
    start_offset: int
    size_bytes: int
    leader_epochs: frozenset[int]


def listed_segments(root: Path) -> list[ListedSegment]:
    """All that is below `root`, each with all of its objects; by partition and start offset."""
    objects: dict[tuple[str, ...], dict[str, Path]] = defaultdict(dict)
    for path in root.rglob("*"):
        key = path.relative_to(root).as_posix()
        if path.is_dir() or key == _MARKER:
            continue
        found = _KEY.fullmatch(key)
        assert found, f"not an object of a segment: {key}"
        *segment, kind = found.groups()
        objects[tuple(segment)][kind] = path
    incomplete = {segment: kinds for segment, kinds in objects.items() if kinds.keys() != _KINDS}
    assert not incomplete, f"not every object is there: {incomplete}"
    segments = [_segment(segment, kinds) for segment, kinds in objects.items()]
    return sorted(segments, key=lambda one: (one.partition, one.start_offset))


def recounted(segments: Iterable[ListedSegment]) -> Recount:
    sizes: dict[PartitionName, dict[int | None, tuple[int, int]]] = defaultdict(dict)
    for segment in segments:
        counted = sizes[segment.partition]
        for epoch in (None, *segment.leader_epochs):
            size_bytes, number = counted.get(epoch, (0, 0))
            counted[epoch] = (size_bytes + segment.size_bytes, number + 1)
    return sizes


def _segment(names: tuple[str, ...], objects: Mapping[str, Path]) -> ListedSegment:
    topic, _, partition, start_offset, segment_id = names
    metadata = json.loads(objects["rsm-manifest"].read_text())["remoteLogSegmentMetadata"]
    return ListedSegment(
        (topic, int(partition)),
        segment_id,
        int(start_offset),
        objects["log"].stat().st_size,
        frozenset(map(int, metadata["segmentLeaderEpochs"])),
    )
