"""Copies that the metadata does not know, beside what is known of their partition: what history each is of.

Before a manifest makes another history of what others say, the history that its copy carries is asked, as in a rebuild.
"""

from collections.abc import Sequence

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_histories import is_odd, lateness, recovered_histories
from include.tiering.model.recovered_log import StoredHistories
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.recovery.stored_attempts import leader_epochs_of
from include.tiering.remote_storage.contract import RemoteStorage


def stored_histories(
    storage: RemoteStorage, known: Sequence[RemoteLogSegmentMetadata], copies: Sequence[RemoteLogSegmentMetadata]
) -> tuple[StoredHistories, tuple[RemoteLogSegmentMetadata, ...]]:
    """The histories, and those of the copies whose manifests say other leader epochs than they carry: they are none of
    the histories.

    Raises:
        RemoteStorageUnavailableError: the store does not answer.
    """
    odd: list[RemoteLogSegmentMetadata] = []
    left = [*known, *copies]
    while True:
        carried = leader_epochs_of(storage, max(left, key=lateness)) if left else LeaderEpochs()
        contradicting = recovered_histories(left, carried).contradicting
        found = [one for one in contradicting if is_odd(one, leader_epochs_of(storage, one))]
        if not found:
            believed = [one for one in known if one in left]
            told = StoredHistories(believed, [one for one in copies if one in left], carried)
            return told, tuple(one for one in copies if one in odd)
        odd += found
        left = [one for one in left if one not in found]
