"""A hundred thousand damaged records before Kafka's own decoders: nothing is taken here that one of them refuses."""

from functools import cache

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.remote_log_metadata import decode, encode
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.kafka_lab.serde_check import accepted_texts
from tests.doubles.sample_values import mutated_values, seed_values

pytestmark = pytest.mark.kafka

RELEASES = ("3.9.2", "4.3.1", "4.4.0")
_OURS_ALONE = "tagged field 0 has a size of"


@cache
def _damaged() -> tuple[bytes, ...]:
    return (*seed_values(), *mutated_values(seed_values(), 100_000, seed=20_261_122))


@cache
def _refusals() -> tuple[str | None, ...]:
    """For each value why it is refused here; None where it is taken."""
    refusals: list[str | None] = []
    for value in _damaged():
        try:
            decode(value)
            refusals.append(None)
        except FormatError as error:
            refusals.append(error.message)
    return tuple(refusals)


@pytest.mark.parametrize("version", RELEASES)
def test_nothing_is_taken_that_a_release_refuses(version: str) -> None:
    require_kafka(version)
    told = accepted_texts(_damaged(), version=version)
    taken_here = [
        value.hex()
        for value, kafka, ours in zip(_damaged(), told, _refusals(), strict=True)
        if ours is None and kafka is None
    ]
    assert taken_here == []
    assert sum(ours is None for ours in _refusals()) > 10_000


def test_what_every_release_takes_is_taken() -> None:
    """All but a known tag whose size is not its type's: 4.x does not look at the size, and may stumble behind it."""
    for version in RELEASES:
        require_kafka(version)
    told = [accepted_texts(_damaged(), version=version) for version in RELEASES]
    refused_here = [
        (value.hex(), ours)
        for value, ours, *kafkas in zip(_damaged(), _refusals(), *told, strict=True)
        if ours is not None and _OURS_ALONE not in ours and None not in kafkas
    ]
    assert refused_here == []


@pytest.mark.parametrize("version", RELEASES)
def test_what_is_written_again_means_the_same_to_kafka(version: str) -> None:
    require_kafka(version)
    taken = [value for value, ours in zip(_damaged(), _refusals(), strict=True) if ours is None]
    again = [encode(decode(value)) for value in taken]
    assert accepted_texts(again, version=version) == accepted_texts(taken, version=version)
