"""A document of another shape than docs/json.md shows does not pass."""

from typing import Any

import pytest

from tests.doubles.json_shapes import problems_of

_SEGMENT = {"start_offset": 0, "end_offset": 9, "bytes": 10, "segment_id": "a"}
_FETCH: dict[str, Any] = {
    "topic": "orders",
    "topic_id": "AAA",
    "partition": 0,
    "bytes": 10,
    "segments": [{**_SEGMENT, "path": None, "refused": None, "by_decision": False, "history": 0, "said": []}],
}


def _with(**members: Any) -> dict[str, Any]:
    return {**_FETCH, "segments": [{**_FETCH["segments"][0], **members}]}


def test_the_shape_passes() -> None:
    assert problems_of(["fetch", "--json"], _FETCH) == []


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({**_FETCH, "colour": "red"}, "$.colour is unknown"),
        ({name: value for name, value in _FETCH.items() if name != "bytes"}, "$.bytes is missing"),
        ({**_FETCH, "partition": "0"}, "$.partition: '0' is no <class 'int'>"),
        ({**_FETCH, "bytes": True}, "$.bytes: True is no <class 'int'>"),
        ({**_FETCH, "segments": None}, "$.segments: None is no list["),
        (_with(by_decision=0), "$.segments[0].by_decision: 0 is no <class 'bool'>"),
        (_with(said=[1]), "$.segments[0].said[0]: 1 is no <class 'str'>"),
        (_with(path=1), "$.segments[0].path: 1 is no <class 'str'>"),
    ],
)
def test_another_shape_does_not(document: dict[str, Any], problem: str) -> None:
    found = problems_of(["fetch", "--json"], document)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_each_command_has_shapes_of_its_own() -> None:
    assert problems_of(["--config", "x", "sizes"], _FETCH)
