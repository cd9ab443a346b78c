"""Which partitions a run takes."""

from include.tiering.copying.run_scope import RunScope
from include.tiering.model.segments import TopicIdPartition, Uuid


def test_a_scope_takes_the_topics_of_the_settings_only_if_it_names_none() -> None:
    assert RunScope().or_topics(["orders*"]) == RunScope(("orders*",))
    assert RunScope(("audit",)).or_topics(["orders*"]) == RunScope(("audit",))


def test_a_scope_takes_of_the_archive_what_its_topics_match() -> None:
    orders, audit = (TopicIdPartition(Uuid(bytes([n]) * 16), 0, name) for n, name in enumerate(("orders", "audit"), 1))
    assert RunScope(("ord*", "none")).archived([orders, audit]) == {orders}
    assert RunScope().archived([orders, audit]) == set()
