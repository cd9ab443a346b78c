"""Measures between a task and the driver."""

import dataclasses
from typing import Any

from include.tiering.model.segments import Depth
from include.tiering.verification.measures import SegmentMeasure
from spark_jobs.verification_measures import measure_from_json, measure_to_json


def measure() -> SegmentMeasure:
    """Every number another one, as large as any."""
    numbers: dict[str, Any] = {
        field.name: 2**62 + place
        for place, field in enumerate(dataclasses.fields(SegmentMeasure))
        if field.default is dataclasses.MISSING
    }
    texts = {"topic": "orders \u2028 \x00", "topic_id": "t", "segment_id": "s"}
    return SegmentMeasure(**numbers | texts)


def test_a_measure_comes_back_as_it_was() -> None:
    for sent in (
        measure(),
        dataclasses.replace(measure(), depth=Depth.DEEP, bytes_read=7, remarks=(("a", 'say "b"'), ("c", ""))),
        dataclasses.replace(measure(), log_crc32c=None, missing_offsets=None),
    ):
        assert measure_from_json(measure_to_json(sent)) == sent
