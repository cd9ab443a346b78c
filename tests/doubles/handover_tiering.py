"""The verbs of hand-overs over a `HandoverWorld`: for tests of what stands in front of them."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from include.tiering.app.decision_verbs import DecisionVerbs
from include.tiering.app.handover_verbs import HandoverVerbs
from include.tiering.remote_storage.store_marker import StoreMarker
from include.tiering.settings import TieringSettings
from tests.doubles.handover_world import HandoverWorld


class WorldApp(HandoverVerbs, DecisionVerbs):
    """As much of `Tiering` as hand-overs need."""

    def __init__(self, world: HandoverWorld) -> None:
        super().__init__(TieringSettings(), clock=world.clock)
        numbers = itertools.count(1)
        self._random_bytes = lambda size: bytes([next(numbers)]) * size
        self.__dict__ |= {"handovers": world.handovers, "handover_ports": world.ports, "brokers": world.brokers}
        self.__dict__["plan_questions"] = world.questions

    def claim_store(self) -> StoreMarker:
        """It has no store: what is copied there is the world's."""
        return StoreMarker("cluster", "store", 1)

    def require_our_store(self) -> None:
        """As `claim_store`."""

    @contextmanager
    def opened(self, *_: Any) -> Iterator["WorldTiering"]:
        """In the place of whatever opens the library."""
        yield self
