"""Traffic by minute, the total copy quota over the same time, and events."""

from pathlib import Path

from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA
from include.tiering.configs.config_store import ALL_BROKERS, ConfigChange, ConfigEntity, EntityType
from include.tiering.operations.events import present_events
from include.tiering.operations.throughput import (
    MinuteTraffic,
    QuotaStep,
    Throughput,
    by_minute,
    present_throughput,
    quota_steps,
)
from include.tiering.quotas.contract import UNLIMITED
from include.tiering.quotas.metrics import DELETE_CALLS
from tests.doubles.archive import Archive


def test_traffic_by_minute() -> None:
    granted, waited = "tiering_quota_granted_bytes", "tiering_quota_throttled_seconds"
    assert by_minute(
        {
            (granted, "copy"): {5: 111.0, 6: 50.0},
            (granted, "fetch"): {5: 7.0},
            (waited, "copy"): {6: 1.25},
            (DELETE_CALLS.name, None): {9: 3.0},
        }
    ) == (
        MinuteTraffic(300_000, 111, 0.0, 7, 0.0, 0),
        MinuteTraffic(360_000, 50, 1.25),
        MinuteTraffic(540_000, delete_requests=3),
    )


def _change(at_ms: int, old: str | None, new: str | None, entity: ConfigEntity = ALL_BROKERS) -> ConfigChange:
    return ConfigChange(entity, TOTAL_COPY_QUOTA, old, new, "ada", at_ms)


def test_the_quota_is_followed_back_to_the_beginning() -> None:
    assert quota_steps([], None, 100) == (QuotaStep(100, None),)
    assert quota_steps([_change(50, None, "8")], "8", 100) == (QuotaStep(100, 8),)
    changes = [
        _change(50, None, "8"),
        _change(150, "8", "4"),
        _change(160, None, "1", ConfigEntity(EntityType.TOPICS, "orders")),
        _change(170, "4", str(UNLIMITED)),
        _change(180, str(UNLIMITED), None),
    ]
    assert quota_steps(changes, None, 100) == (
        QuotaStep(100, 8),
        QuotaStep(150, 4),
        QuotaStep(170, None),
        QuotaStep(180, None),
    )


def test_a_command_shows_minutes_and_its_json_the_changes() -> None:
    change = _change(150, "8", None)
    shown = present_throughput(
        Throughput(0, 600_000, (MinuteTraffic(60_000, 6_000, 0.5),), (QuotaStep(0, 8), QuotaStep(150, None)), (change,))
    )
    (table,) = shown.tables()
    assert [str(cell) for cell in table.rows[0]][1:4] == ["5.9 KiB", "100 B", "0.5s"]
    document = shown.document()
    assert document["total_copy_quota"] == [
        {"from_ms": 0, "bytes_per_second": 8},
        {"from_ms": 150, "bytes_per_second": None},
    ]
    assert (document["changes"][0]["author"], document["changes"][0]["unit"]) == ("ada", "bytes a second")
    assert shown.summary == "5.9 KiB sent by copies in 1 minute with traffic"


def test_it_has_the_changes_of_limits_and_no_others(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    with archive.open() as app:
        limits = {TOTAL_COPY_QUOTA: "400000", "tiering.copier.max.batches": "3"}
        app.adapters.stores.configs.alter(ALL_BROKERS, limits, author="ada")
        found = app.operations.throughput.last_hours(6)
    assert [change.name for change in found.changes] == [TOTAL_COPY_QUOTA]
    assert found.total_copy_quota[-1].bytes_per_second == 400_000
    assert found.total_copy_quota[0].bytes_per_second is None
    assert found.until_ms - found.since_ms == 6 * 3_600_000


def test_events_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    with archive.open() as app:
        app.adapters.stores.work.pause("orders", author="ada")
        app.adapters.stores.work.resume("orders", author="bob")
        found = app.adapters.stores.events.newest(2)
        assert len(app.adapters.stores.events.newest(1)) == 1
    shown = present_events(found, 3)
    assert [(event["kind"], event["subject"], event["author"]) for event in shown.document()["events"]] == [
        ("resume", "orders", "bob"),
        ("pause", "orders", "ada"),
    ]
    (table,) = shown.tables()
    assert [row[1:4] for row in table.rows] == [("bob", "resume", "orders"), ("ada", "pause", "orders")]
    assert shown.summary == "2 events"
    assert present_events(found, 2).summary == "2 events; older ones may be left out: --last"
    assert present_events((), 2).summary == "0 events"
