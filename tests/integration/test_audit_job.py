"""The audit on a real Spark: the same findings as in one process, on mixtures of everything that can disagree."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from include.tiering.app import open_app
from include.tiering.audit.compare import classify, gather
from include.tiering.audit.finding import AuditContext, AuditMoment, ManifestReader
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.store_ownership import marker_to_bytes
from include.tiering.settings import load_settings
from spark_jobs.audit import attempt, parse_arguments, passed_over_of, read_findings
from spark_jobs.audit_frames import (
    FACTS,
    LISTED,
    LISTED_SCHEMA,
    SEGMENTS_SCHEMA,
    batch_of,
    finding_of,
    listed_row,
    upload_row,
)
from spark_jobs.audit_tasks import classified_alone, classified_ranges, classified_segments
from spark_jobs.packed_rows import kept_without_errors
from tests.doubles.audit_plants import PLANTS, QUIET, UPLOAD_PLANTS, VERSION_PLANTS
from tests.doubles.audit_stores import write_database
from tests.doubles.audit_worlds import LISTED_AT_MS, MARKER, World
from tests.doubles.spark import NO_JAVA

_SETTLED = ("of brokers", "a copy under way", "encrypted by a broker", "compressed by a broker", "our own")
pytestmark = [pytest.mark.integration, NO_JAVA]


def random_world(seed: int) -> World:
    chosen = random.Random(seed)
    world = World.empty(current_version="v1" if seed % 2 else "")
    plants = [*PLANTS.values(), *VERSION_PLANTS.values(), *UPLOAD_PLANTS.values(), *QUIET.values()]
    for _ in range(150):
        chosen.choice([*plants, *[lambda into: into.healthy()] * 10])(world)
    return world


def test_spark_finds_what_one_process_finds(spark: SparkSession) -> None:
    world = random_world(1)
    context = AuditContext(AuditMoment(LISTED_AT_MS), AivenLayout(), world.topics, frozenset(world.leased_partitions))
    stored = dict(world.manifests)

    @contextmanager
    def manifests() -> Iterator[ManifestReader]:
        yield stored.get

    rows = [*map(listed_row, world.objects), *map(upload_row, world.uploads)]
    listed = spark.createDataFrame(pa.Table.from_batches([batch_of(rows, LISTED_SCHEMA)]), LISTED)
    cluster_metadata = spark.createDataFrame(pa.Table.from_batches([batch_of(world.segments, SEGMENTS_SCHEMA)]), FACTS)
    classified = classified_alone(listed, context).unionByName(
        classified_segments(listed, cluster_metadata, context, manifests, tasks=3)
    )
    found = classified_ranges(cluster_metadata, kept_without_errors(classified), context, tasks=3).cache()
    expected = classify(
        gather([world.objects], [world.uploads], context),
        world.segments,
        AuditContext(context.moment, context.layout, context.topics, context.leased_partitions, stored.get),
    )
    findings = [finding_of(row.asDict()) for row in found.where("kind is not null").collect()]
    assert sorted(findings, key=lambda finding: finding.identity) == list(expected.findings)
    assert sorted(finding.identity for finding in findings) == sorted(world.expected)
    assert dict(passed_over_of(found)) == dict(expected.passed_over)


def test_the_job_audits_a_store_and_records_what_it_found(spark: SparkSession, tmp_path: Path) -> None:
    """A directory as the store, everything in it older than the age guard but the marker."""
    world = World.empty()
    for plant in (*PLANTS.values(), *(QUIET[name] for name in _SETTLED)):
        plant(world)
    del world.objects[0]  # the marker that is not the database's
    world.uploads.clear()
    root, out, database = tmp_path / "store", tmp_path / "out", f"sqlite:///{tmp_path / 'tiering.sqlite'}"
    for listed in world.objects:
        path = root / listed.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(world.content_of(listed))
        os.utime(path, (listed.last_modified_ms / 1000, listed.last_modified_ms / 1000))
    marker = write_database(database, world, store_url=root.as_uri())
    config = tmp_path / "tiering.toml"
    config.write_text(f'metadata.url = "{database}"\nremote_storage.url = "{root.as_uri()}"\n')
    options = parse_arguments(["--output", str(out), "--config", str(config), "--record", "run-1", "--parts", "3"])

    refused = attempt(spark, options)
    assert refused["exit_code"] == int(ExitCode.FINDINGS)
    assert "ForeignStoreError" in refused["error"]

    (root / MARKER).write_bytes(marker_to_bytes(marker))
    summary = attempt(spark, options)
    found = sorted(finding.identity for finding in read_findings(out))
    assert found == sorted(world.expected)
    assert summary["exit_code"] == int(ExitCode.FINDINGS)
    assert summary["objects"] == len(world.objects) + 1
    assert summary["rows"] == len(world.segments)
    assert summary["recorded"] == len(found)
    assert sum(kind["findings"] for kind in summary["findings"].values()) == len(found)
    assert json.loads((out / "summary.json").read_text()) == summary
    with open_app(load_settings(config)) as app:
        recorded = Counter(one.finding.kind.value for one in app.audit.findings("run-1"))
    assert recorded == Counter(kind for kind, *_ in found)
