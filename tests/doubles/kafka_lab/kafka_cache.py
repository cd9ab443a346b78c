"""Kafka's own cache of remote log metadata, told records and asked what it knows."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.doubles.kafka_lab.java_programs import run_program


@dataclass
class KnownPartition:
    """What the cache says of one partition. Ids are Kafka's text.

    Attributes:
        states: of every segment that it knows.
        listed: by leader epoch, in its order.
        highest: by leader epoch; None where nothing was ever finished.
        found: by leader epoch and offset.
    """

    states: dict[str, str] = field(default_factory=dict)
    listed: dict[int, list[str]] = field(default_factory=dict)
    highest: dict[int, int | None] = field(default_factory=dict)
    found: dict[tuple[int, int], str] = field(default_factory=dict)


Known = dict[tuple[str, int], KnownPartition]
"""By topic id and partition."""


def told(sequences: Sequence[Sequence[bytes]], *, lookups: int = 0, version: str = "4.3.1") -> list[Known]:
    """What a cache knows after each sequence of values; `lookups`: so many offsets, from 0 on. One JVM for all."""
    asked = struct.pack(">i", len(sequences))
    for values in sequences:
        asked += struct.pack(">i", len(values)) + b"".join(struct.pack(">i", len(one)) + one for one in values)
        asked += struct.pack(">i", lookups)
    answered = list(_answers(run_program("KafkaCache", given=asked, version=version).decode().splitlines()))
    assert len(answered) == len(sequences)
    return answered


def _answers(lines: Iterable[str]) -> list[Known]:
    answers: list[Known] = []
    partition = KnownPartition()
    for line in lines:
        if not line.startswith("> "):
            continue
        kind, *words = line.split()[1:]
        if kind == "sequence":
            answers.append({})
        elif kind == "partition":
            partition = answers[-1][words[0], int(words[1])] = KnownPartition()
        elif kind == "segment":
            partition.states[words[0]] = words[1]
        elif kind == "epoch":
            epoch = int(words[0])
            partition.highest[epoch] = None if words[1] == "-" else int(words[1])
            partition.listed[epoch] = words[2:]
        else:
            partition.found[int(words[0]), int(words[1])] = words[2]
    return answers
