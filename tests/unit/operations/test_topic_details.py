"""The history of a topic by hour, and what is left out of its document."""

from include.tiering.configs.config_store import TopicRetention
from include.tiering.configs.report import Description
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import PartitionStates
from include.tiering.operations.topic_details import (
    MOST_PARTITIONS,
    HourOfTopic,
    TopicDetails,
    by_hour,
    topic_details_document,
)
from include.tiering.operations.topic_list import ListedTopic
from include.tiering.segments.sizes_contract import TopicTotal

_ID = Uuid(bytes(16))


def test_an_hour_has_the_last_value_that_was_published_in_it() -> None:
    assert by_hour({"RemoteLogSizeBytes": {119: 3.0, 60: 1.0, 180: 7.0}, "RemoteCopyLagBytes": {61: 9.0}}) == (
        HourOfTopic(3_600_000, 3.0, 9.0),
        HourOfTopic(10_800_000, 7.0, None),
    )


def test_a_topic_of_which_nothing_was_copied_yet_says_what_is_known() -> None:
    details = TopicDetails(
        "payments", (), (), (), (), Description((), ()), (), never_copied={"above-last-stable-offset": 2}
    )
    document = topic_details_document(details, currency=None)
    assert (document["topics"], document["never_copied"]) == ([], 2)
    (why,) = document["held_back"]
    assert "a transaction is open" in (why["reason_message"] or "")
    assert why["advice"].startswith("./tiering doctor payments: ")


def test_a_long_topic_says_how_much_is_left_out_and_unknown_reasons_stay() -> None:
    partitions = tuple(PartitionStates(TopicIdPartition(_ID, n, "orders"), ()) for n in range(MOST_PARTITIONS + 3))
    total = TopicTotal(_ID, "orders", TopicOwner.PLATFORM, len(partitions), 0, 0, 0)
    listed = ListedTopic(total, TopicRetention(), held_back=("hole", "of-a-later-version"))
    document = topic_details_document(
        TopicDetails("orders", (listed,), partitions, (), (), Description((), ()), ()), currency=None
    )
    assert (len(document["partitions"]), document["more_partitions"]) == (MOST_PARTITIONS, 3)
    assert [each["advice"] for each in document["held_back"]] == ["./tiering doctor orders", ""]
    assert document["held_back"][1]["reason_message"] == "of-a-later-version"
