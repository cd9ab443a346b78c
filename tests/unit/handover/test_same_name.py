"""Two open handovers of one name: the topic was created again before the first one was recorded."""

from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.errors import UnknownTopicError
from include.tiering.handover.contract import Handover
from include.tiering.handover.service import HandoverService
from include.tiering.model.segments import Uuid
from tests.doubles.segments import uuid

OLD, NOW, OTHER = uuid(1), uuid(2), uuid(3)


def handover(topic_id: Uuid, began_at_ms: int, topic: str = "orders") -> Any:
    return SimpleNamespace(topic=topic, topic_id=topic_id, began_at_ms=began_at_ms)


@pytest.fixture
def latest_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of "orders", whose id by the brokers is NOW, or None if they do not know it."""

    def latest_of(*open_ones: Any, topic_id: Uuid | None = NOW) -> Handover | None:
        def known(_self: HandoverService, topic: str) -> Uuid:
            if topic_id is None:
                raise UnknownTopicError(f"no topic {topic}")
            return topic_id

        monkeypatch.setattr(HandoverService, "topic_to_hand_over", known)
        ended = SimpleNamespace(open_handovers=lambda: open_ones, latest=lambda topic_id: ("ended", topic_id))
        others = ("ports", "brokers", "require_free_broker_id", "ownership", "random_bytes")
        parts: dict[str, Any] = {"handovers": ended, **dict.fromkeys(others)}
        return HandoverService(**parts).latest_of("orders")

    return latest_of


def test_that_of_the_topic_of_now_comes_first(latest_of: Any) -> None:
    """Found by simulation, seed 9017290: the older topic's was taken each time, and the other one never ended."""
    old, now = handover(OLD, 200), handover(NOW, 100)
    assert latest_of(old, now) is now
    assert latest_of(now, old) is now


def test_the_other_one_follows(latest_of: Any) -> None:
    old = handover(OLD, 200)
    assert latest_of(old) is old
    assert latest_of(old, topic_id=None) is old


def test_without_a_topic_of_now_the_newest_comes_first(latest_of: Any) -> None:
    older, newer = handover(OLD, 100), handover(OTHER, 200)
    assert latest_of(older, newer, topic_id=None) is newer
    assert latest_of(newer, older, topic_id=None) is newer


def test_none_is_open(latest_of: Any) -> None:
    assert latest_of(handover(OTHER, 1, "payments")) == ("ended", NOW)
