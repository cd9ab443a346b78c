"""The audit on a real Spark: the same findings as in one process, on mixtures of everything that can disagree."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from include.tiering.audit.context import AuditContext, AuditMoment, ManifestReader
from include.tiering.audit.whole import gather, judge
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from spark_jobs.audit_frames import (
    FACTS,
    FACTS_SCHEMA,
    LISTED,
    LISTED_SCHEMA,
    batch_of,
    finding_of,
    listed_row,
    upload_row,
)
from spark_jobs.audit_summary import passed_over_of
from spark_jobs.audit_transform import judged_alone, judged_ranges, judged_segments
from spark_jobs.task_errors import without_errors
from tests.doubles.audit_plants import PLANTS, QUIET, UPLOAD_PLANTS, VERSION_PLANTS
from tests.doubles.audit_worlds import LISTED_AT_MS, World
from tests.doubles.spark_session import NO_JAVA

pytestmark = [pytest.mark.integration, NO_JAVA]


def random_world(seed: int) -> World:
    chosen = random.Random(seed)
    world = World.empty(current_version="v1" if seed % 2 else "")
    plants = [*PLANTS.values(), *VERSION_PLANTS.values(), *UPLOAD_PLANTS.values(), *QUIET.values()]
    for _ in range(150):
        chosen.choice([*plants, *[lambda into: into.healthy()] * 10])(world)
    return world


@pytest.mark.parametrize("seed", range(2))
def test_spark_finds_what_one_process_finds(spark: SparkSession, seed: int) -> None:
    world = random_world(seed)
    context = AuditContext(AuditMoment(LISTED_AT_MS), AivenLayout(), world.topics, frozenset(world.worked_on))
    stored = dict(world.manifests)

    @contextmanager
    def manifests() -> Iterator[ManifestReader]:
        yield stored.get

    rows = [*map(listed_row, world.objects), *map(upload_row, world.uploads)]
    listed = spark.createDataFrame(pa.Table.from_batches([batch_of(rows, LISTED_SCHEMA)]), LISTED)
    facts = spark.createDataFrame(pa.Table.from_batches([batch_of(world.facts, FACTS_SCHEMA)]), FACTS)
    judged = judged_alone(listed, context).unionByName(judged_segments(listed, facts, context, manifests, tasks=3))
    found = judged_ranges(facts, without_errors(judged.cache()), context, tasks=3).cache()
    expected = judge(
        gather([world.objects], [world.uploads], context),
        world.facts,
        AuditContext(context.moment, context.layout, context.topics, context.worked_on, stored.get),
    )
    findings = [finding_of(row.asDict()) for row in found.where("kind is not null").collect()]
    assert sorted(findings, key=lambda finding: finding.identity) == list(expected.findings)
    assert sorted(finding.identity for finding in findings) == sorted(world.expected)
    assert dict(passed_over_of(found)) == dict(expected.passed_over)
