"""The verbs of hand-overs over a `HandoverWorld`: for tests of what stands in front of them."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from include.tiering.settings import TieringSettings
from include.tiering.wiring.handover_verbs import HandoverVerbs
from tests.doubles.handover_world import HandoverWorld


class WorldTiering(HandoverVerbs):
    """As much of `Tiering` as hand-overs need."""

    def __init__(self, world: HandoverWorld) -> None:
        super().__init__(TieringSettings(), clock=world.clock)
        numbers = itertools.count(1)
        self._random_bytes = lambda size: bytes([next(numbers)]) * size
        self.__dict__ |= {"handovers": world.handovers, "handover_ports": world.ports, "brokers": world.brokers}

    @contextmanager
    def opened(self, *_: Any) -> Iterator["WorldTiering"]:
        """In the place of whatever opens the library."""
        yield self
