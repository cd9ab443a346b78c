"""The services of handovers over a `HandoverWorld`: for tests of what stands in front of them."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from include.tiering.app import App
from include.tiering.model.ownership import StoreMarker
from include.tiering.settings import TieringSettings
from tests.doubles.fake_app import put
from tests.doubles.handover_world import HandoverWorld


class WorldApp(App):
    """As much of an `App` as handovers need. It has no store: what is copied there is the world's."""

    def __init__(self, world: HandoverWorld) -> None:
        numbers = itertools.count(1)
        super().__init__(TieringSettings(), clock=world.clock, random_bytes=lambda size: bytes([next(numbers)]) * size)
        put(
            self,
            engine=cast(Any, None),
            cluster_id="cluster",
            handovers=world.handovers,
            handover_ports=world.ports,
            brokers=world.brokers,
            plan_questions=world.questions,
        )
        marker = StoreMarker("cluster", "store", 1)
        self.__dict__["ownership"] = SimpleNamespace(
            claim=lambda: marker, require=lambda: None, claim_if_possible=lambda: None
        )

    @contextmanager
    def opened(self, *_: Any) -> Iterator["WorldApp"]:
        """In the place of whatever opens the library."""
        yield self
