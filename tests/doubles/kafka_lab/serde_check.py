"""Kafka's own serde of `__remote_log_metadata`, asked about many values at once."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.doubles.kafka_lab.java_programs import run_program


@dataclass(frozen=True, slots=True)
class SerdeAnswer:
    """`text`: Kafka's words for what it decoded, or the class and message of its refusal."""

    accepted: bool
    text: str


def accepted_texts(values: Sequence[bytes], *, version: str = "4.3.1") -> list[str | None]:
    """For each value what Kafka decodes it to, as `toString` says it; None where Kafka refuses it."""
    return [told.text if told.accepted else None for told in answers(values, version=version)]


def answers(values: Sequence[bytes], *, version: str = "4.3.1") -> list[SerdeAnswer]:
    """The same with the reasons of refusals. One JVM for all: 3 s, and a second for 100,000 values.

    Raises:
        KafkaMissingError: no Java, no jars.
        AssertionError: the program failed.
    """
    asked = struct.pack(">i", len(values)) + b"".join(struct.pack(">i", len(value)) + value for value in values)
    answered = list(_answers(run_program("SerdeCheck", given=asked, version=version)))
    assert len(answered) == len(values)
    return answered


def _answers(told: bytes) -> Iterator[SerdeAnswer]:
    position = 0
    while position < len(told):
        accepted, length = struct.unpack_from(">bi", told, position)
        position += 5
        yield SerdeAnswer(accepted == 1, told[position : position + length].decode())
        position += length
