"""`leader-epoch-checkpoint` of a partition, and the LEADER_EPOCH object of a remote segment: one text form.

0              format version
2              number of entries that follow
0 0            epoch, start offset (inclusive)
3 1500
"""

from include.tiering.errors import FormatError
from include.tiering.formats.checkpoint import parse_entries, parse_integer
from include.tiering.model.leader_epochs import LeaderEpochs


def parse(data: bytes) -> LeaderEpochs:
    """Raises FormatError unless it is a checkpoint whose epochs ascend."""
    entries = [
        (parse_integer(epoch, 31, position), parse_integer(start_offset, 63, position))
        for position, (epoch, start_offset) in parse_entries(data, 2)
    ]
    try:
        return LeaderEpochs.of(entries)
    except ValueError as error:
        raise FormatError(str(error)) from error


def serialize(leader_epochs: LeaderEpochs) -> bytes:
    """The bytes that a broker writes for this history."""
    lines = ["0", str(len(leader_epochs)), *(f"{epoch} {start}" for epoch, start in leader_epochs), ""]
    return "\n".join(lines).encode()
