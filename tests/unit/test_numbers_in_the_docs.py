"""Numbers that the pages promise are those of the code: who changes one sees the sentence about it."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

import pytest

from include.tiering.units import KIB, MIB
from tests.doubles.source_tree import ROOT

SECOND, MINUTE = 1_000, 60_000
DAY = 24 * 60 * MINUTE

# Page, what it says, and the constants that it is about.
SENTENCES: Final[list[tuple[str, str, dict[str, Any]]]] = [
    (
        "data-flow",
        "They delete in groups of up to 333 segments",
        {"expiration.delete_segments.SEGMENTS_PER_GROUP": 333},
    ),
    ("runbook", "Each request deletes up to 333 segments", {"audit.remove_orphans.ATTEMPTS_PER_GROUP": 333}),
    ("failure-modes", "its length and one minute is not honoured", {"database.transactions.LEASE_MARGIN_MS": MINUTE}),
    ("failure-modes", "the answer has more than 16.0 MiB", {"remote_storage.s3.listing.MAX_ANSWER_BYTES": 16 * MIB}),
    (
        "failure-modes",
        "Before a login is complete at most 64 KiB of an answer are read",
        {"kafka.protocol.connections.MAX_LOGIN_FRAME_BYTES": 64 * KIB},
    ),
    ("failure-modes", "had no driver for more than five minutes", {"handover.contract.ALONE_MS": 5 * MINUTE}),
    ("runbook", "waited for a person for more than a day", {"handover.contract.PERSON_MS": DAY}),
    (
        "failure-modes",
        "too large to be opened: it has more than 32 MiB, or decompresses to more than 64 MiB",
        {"formats.records.MAX_RECORDS_BYTES": 64 * MIB, "handover.actions._BLOCK_BYTES": 32 * MIB},
    ),
    (
        "failure-modes",
        "Nothing is reported up to 512 MiB or 2,097,152 records",
        {"formats.records.MAX_STREAMED_BYTES": 512 * MIB, "formats.records.MAX_RECORDS": 2_097_152},
    ),
    (
        "failure-modes",
        "two databases that plan within 2 seconds of each other",
        {"remote_storage.claim_store.SETTLE_SECONDS": 2.0},
    ),
    ("runbook", "Airflow did not answer within five seconds", {"configs.airflow_api._DAGS_SECONDS": 5.0}),
    (
        "runbook",
        "The topic waits up to 30 seconds between tries",
        {"copying.scheduling.FIRST_BACK_OFF_SECONDS": 1.0, "copying.scheduling.LONGEST_BACK_OFF_SECONDS": 30.0},
    ),
    ("runbook", "An attempt that waits longer than 20 seconds is given up", {"runs.batch.PAUSE_HOLD_SECONDS": 20.0}),
    (
        "runbook",
        "the command returns when they have, or after 5 seconds",
        {"configs.service.WAIT_SECONDS": 5.0},
    ),
    ("runbook", "still shows the old value after ten seconds", {"operations.broker_configs.WAIT_SECONDS": 10.0}),
    (
        "metrics",
        "the newest whole minute, which ended 15 to 75 seconds ago",
        {"database.metric_series.SETTLED_MS": 15 * SECOND, "telemetry.metrics.MINUTE_MS": MINUTE},
    ),
    ("runbook", "It waits up to 40 seconds for the lease of a dead driver", {"cli.handover._LEASE_WAIT_SECONDS": 40.0}),
    (
        "handover",
        "until the dead driver's lease ends, at most half a minute",
        {"app.handover._LEASE_MS": 30 * SECOND},
    ),
    (
        "monitoring",
        "It serves 16 clients at a time, each for 10 seconds at most",
        {"operations.exporters._MOST_CLIENTS": 16, "operations.exporters._REQUEST_SECONDS": 10},
    ),
    (
        "monitoring",
        "Between scrapes that are less than five seconds apart the database is not asked again",
        {"operations.monitoring.FRESH_SECONDS": 5.0},
    ),
    (
        "monitoring",
        "in the last minute, hour and day",
        {"operations.monitoring._TRAFFIC_MINUTES": (1, 60, 1_440)},
    ),
    (
        "monitoring",
        "a row for each series and hour of the last 14 days",
        {"database.metric_series.KEPT_HOURS": 14 * 24, "operations.throughput.MOST_HOURS": 14 * 24},
    ),
    (
        "page",
        "would go with the next run, in 7 and in 30 days",
        {"expiration.preview.HORIZONS_MS": (0, 7 * DAY, 30 * DAY)},
    ),
    ("airflow", "A job that has waited 15 minutes", {"configs.spark_cluster.LONGEST_WAIT_SECONDS": 900.0}),
    (
        "airflow",
        "after 30 minutes without a core the platform does not count it any more",
        {"configs.spark_cluster._DEAD_AFTER_SECONDS": 1_800.0},
    ),
    ("runbook", "or one that died within the last two minutes", {"metadata_sync.publish.LEASE_MS": 2 * MINUTE}),
    ("layouts", "The first 64 MiB of the result are kept", {"remote_storage.layouts.aiven_form.KEPT_BYTES": 64 * MIB}),
    (
        "layouts",
        "more than 128 bytes: the broker deletes the copy",
        {"remote_storage.layouts.aiven_form.BROKERS_LIMIT_BYTES": 128},
    ),
    ("layouts", "refused above 128 MiB", {"remote_storage.layouts.aiven_form.MAX_CHUNK_BYTES": 128 * MIB}),
    (
        "handover",
        "for three times the copied bytes and 64 MiB",
        {"broker_process.sample.COPIES": 3, "broker_process.sample._BASE_BYTES": 64 * MIB},
    ),
]


@pytest.mark.parametrize(("page", "sentence", "constants"), SENTENCES, ids=[sentence for _, sentence, _ in SENTENCES])
def test_a_page_and_the_code_name_the_same_number(page: str, sentence: str, constants: dict[str, Any]) -> None:
    assert sentence in (ROOT / "docs" / f"{page}.md").read_text()
    assert _found(constants) == constants


# What other systems fix. It is compared with their own words, not with ours.
FIXED: Final[list[tuple[str, dict[str, Any]]]] = [
    (
        "S3: an upload has at most 10,000 parts; a deletion has at most 1,000 keys; a key has at most 1,024 bytes",
        {
            "remote_storage.s3.store.MAX_PARTS": 10_000,
            "remote_storage.s3.store._KEYS_PER_DELETE": 999,
            "remote_storage.object_store.MAX_KEY_LENGTH": 1_024,
            "remote_storage.s3.listing._PAGE_KEYS": 1_000,
        },
    ),
    (
        "AES-256 in Galois/Counter Mode: keys of 32 bytes, an IV of 12 bytes, a tag of 16 bytes",
        {
            "remote_storage.layouts.key_ring.DATA_KEY_BYTES": 32,
            "remote_storage.layouts.key_ring.AAD_BYTES": 32,
            "formats.aiven_chunks.IV_BYTES": 12,
            "formats.aiven_chunks.TAG_BYTES": 16,
            "formats.aiven_chunks.ENCRYPTION_OVERHEAD_BYTES": 28,
        },
    ),
    (
        "Kafka's record batch: a header of 61 bytes, of which the length leaves out 12 and the checksum 21",
        {
            "formats.record_batch.HEADER_SIZE": 61,
            "formats.record_batch.LOG_OVERHEAD": 12,
            "formats.record_batch.CRC_START": 21,
            "formats.record_batch.MAGIC": 2,
            "formats.record_batch.CODEC_MASK": 0b111,
            "formats.record_batch.LOG_APPEND_TIME_FLAG": 1 << 3,
            "formats.record_batch.TRANSACTIONAL_FLAG": 1 << 4,
            "formats.record_batch.CONTROL_FLAG": 1 << 5,
            "formats.record_batch.DELETE_HORIZON_FLAG": 1 << 6,
            "formats.record_batch.NO_TIMESTAMP": -1,
            "formats.record_batch.NO_PRODUCER": -1,
            "formats.record_batch.MAX_OFFSET": 9_223_372_036_854_775_807,
        },
    ),
    ("CRC-32C: the polynomial of Castagnoli, reversed", {"formats.record_batch._POLYNOMIAL": 0x82F63B78}),
    (
        "Kafka: a segment has fewer than 2 GiB, an id has 16 bytes and 22 characters, a log is kept for a week",
        {
            "kafka.log_dirs.rules.MAX_SEGMENT_BYTES": 2_147_483_647,
            "kafka.log_dirs.files.MAX_OFFSET": 9_223_372_036_854_775_807,
            "model.segments.UUID_TEXT_LENGTH": 22,
            "copying.plan_copy.KAFKA_DEFAULT_RETENTION_MS": 604_800_000,
        },
    ),
    (
        "Kafka's quotas: fetches are measured over 11 samples of a second, and idle meters go after an hour",
        {
            "quotas.fetch_admission.DEFAULT_SAMPLES": 11,
            "quotas.fetch_admission.DEFAULT_SAMPLE_MS": 1_000,
            "quotas.window.INACTIVE_MS": 3_600_000,
            "quotas.contract.UNLIMITED": 9_223_372_036_854_775_807,
        },
    ),
    (
        "a one-minute average that ticks every five seconds",
        {
            "quotas.topic_quotas.TICK_MS": 5_000,
            "quotas.topic_quotas.WINDOW_MS": 60_000,
            "quotas.topic_quotas.ALPHA": pytest.approx(0.0799555853706767),
        },
    ),
    (
        "RFC 7677: SCRAM iterates at least 4,096 times",
        {"kafka.protocol.login.MIN_ITERATIONS": 4_096},
    ),
    ("units", {"units.KIB": 1_024, "units.MIB": 1_048_576, "units.GIB": 1_073_741_824, "units.TIB": 1_099_511_627_776}),
    (
        "a day has 24 hours",
        {
            f"{module}._DAY_MS": DAY
            for module in (
                "cli.verification",
                "expiration.preview",
                "segments.topics",
                "settings.operational",
                "settings.use_cases",
                "verification.data_docs",
            )
        },
    ),
]


@pytest.mark.parametrize(("rule", "constants"), FIXED, ids=[rule for rule, _ in FIXED])
def test_what_others_fix_is_as_they_say(rule: str, constants: dict[str, Any]) -> None:
    assert _found(constants) == constants, rule


def _found(names: Iterable[str]) -> dict[str, Any]:
    parts = {name: name.rpartition(".") for name in names}
    return {
        name: getattr(import_module(f"include.tiering.{module}"), last) for name, (module, _, last) in parts.items()
    }
