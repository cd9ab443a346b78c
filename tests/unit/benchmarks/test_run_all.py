"""The harness finds the JSON at the end of a benchmark's output, and knows the machine."""

import json

import pytest

from benchmarks.machine import IdleMeter, machine_description
from benchmarks.run_all import last_json


@pytest.mark.parametrize("output", ['{"rate": 3}\n', 'warming up\nround 1\n{"rate": 3}\n', '{\n  "rate": 3\n}\n'])
def test_the_last_document_counts(output: str) -> None:
    assert last_json(output) == {"rate": 3}


def test_output_without_a_result_is_an_error() -> None:
    with pytest.raises(json.JSONDecodeError):
        last_json("warming up\n")


def test_the_machine_is_described() -> None:
    machine = machine_description()
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] > machine["memory_available_bytes"] > 0
    assert all(machine["packages"].values())
    json.dumps(machine)


def test_the_idle_share_is_one() -> None:
    meter = IdleMeter()
    sum(range(2_000_000))
    assert 0.0 <= meter.share() < 1.0
