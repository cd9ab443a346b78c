"""`sizes`: what is FINISHED, and what is stored and paid for, through the whole command."""

import json
from pathlib import Path

from include.tiering.model.segments import RemoteLogSegmentState
from tests.doubles.orphans import TinyCopies
from tests.doubles.segments import update_of
from tests.doubles.tiny_deployment import PARTITION, TinyDeployment

FINISHED, DELETE_STARTED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED


def test_what_is_being_deleted_is_stored_and_paid_for(tmp_path: Path) -> None:
    deployment = TinyDeployment(tmp_path)
    with deployment.open() as app:
        copies = TinyCopies.into(app, PARTITION)
        segments = [copies.copy() for _ in range(2)]
        for segment, (bytes_left, stored) in zip(segments, [(500, 1_000), (0, 1_000)], strict=True):
            app.adapters.stores.metadata.update_segment(
                update_of(segment, DELETE_STARTED), expected=FINISHED, fence=copies.lease.fence
            )
            (found,) = json.loads(deployment.run("sizes", "--json").stdout)["partitions"]
            assert (found["bytes"], found["stored_bytes"]) == (bytes_left, stored)
