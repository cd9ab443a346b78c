"""Names that were recorded of topic ids: how often they are asked for."""

from include.tiering.kafka.log_dirs.found_replica import kept
from include.tiering.model.segments import Uuid

ORDERS, PAYMENTS = Uuid(b"o" * 16), Uuid(b"p" * 16)


def test_a_recorded_name_is_asked_for_once_and_a_missing_one_each_time() -> None:
    asked: list[Uuid] = []
    known: dict[Uuid, str] = {ORDERS: "orders"}

    def recorded(topic_id: Uuid) -> str | None:
        asked.append(topic_id)
        return known.get(topic_id)

    name = kept(recorded)
    assert [name(ORDERS), name(ORDERS), name(PAYMENTS)] == ["orders", "orders", None]
    known[PAYMENTS] = "payments"
    assert [name(PAYMENTS), name(PAYMENTS)] == ["payments", "payments"]
    assert asked == [ORDERS, PAYMENTS, PAYMENTS]
