"""`spark.read.format("kafka-tiered")` in this process: what real consumers got, and only what is needed is read."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from include.tiering.configs.config_catalogue import NARROW_FETCH_QUOTA
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.formats.record_columns import HEADERS, SCHEMA
from include.tiering.quotas.contract import NAMELESS_CLIENT
from include.tiering.quotas.shared_quotas import SharedQuotas
from spark_jobs.kafka_tiered import FORMAT, KafkaTieredReader, register
from spark_jobs.kafka_tiered_options import PushedFilters
from tests.doubles.spark import NO_JAVA
from tests.doubles.whole_logs import WholeLogs, consumed, digest_of, public_logs

pytestmark = [pytest.mark.integration, NO_JAVA]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLogs]:
    with public_logs(tmp_path_factory.mktemp("public")) as planted:
        yield planted


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def read(session: SparkSession, logs: WholeLogs, **options: Any) -> DataFrame:
    reader = session.read.format(FORMAT).option("config", str(logs.config))
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.load()


def digest_by_partition(frame: DataFrame) -> dict[tuple[str, int], Any]:
    table = frame.orderBy("topic", "partition", "offset").toArrow()
    rows: dict[tuple[str, int], list[pa.RecordBatch]] = {}
    for topic, number in set(zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)):
        here = pa.compute.and_(pa.compute.equal(table["topic"], topic), pa.compute.equal(table["partition"], number))
        rows[topic, number] = table.filter(here).to_batches()
    return {key: digest_of(batches) for key, batches in rows.items()}


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_all_topics_at_once(session: SparkSession, logs: WholeLogs, level: str) -> None:
    frame = read(session, logs, subscribePattern=".*", includeHeaders="true", kafka_isolation_level=level)
    wanted = {
        (each.topic, each.partition): consumed("public", each, committed=level == "read_committed")
        for each in logs.logs
    }
    assert digest_by_partition(frame) == wanted


def test_columns_are_those_of_sparks_kafka_source(session: SparkSession, logs: WholeLogs) -> None:
    frame = read(session, logs, subscribe="orders", includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert frame.toArrow().schema.names == [*SCHEMA.names, HEADERS.name]
    assert "headers" not in read(session, logs, subscribe="orders").columns


def test_filters_say_what_is_read(session: SparkSession, logs: WholeLogs) -> None:
    def orders() -> DataFrame:
        return read(session, logs, subscribe="orders", pushFilters="true")

    chosen = orders().where((f.col("partition") == 1) & (f.col("offset") >= 500) & (f.col("offset") < 510))
    assert [row.offset for row in chosen.orderBy("offset").collect()] == [*range(500, 510)]
    assert chosen.rdd.getNumPartitions() == 1
    assert orders().where(f.col("partition") == 9).count() == 0
    ((newest,),) = orders().agg(f.max("timestamp")).collect()
    assert (
        orders().where(f.col("timestamp") >= newest).count() == orders().where(f.col("timestamp") == newest).count() > 0
    )


def test_queries_of_one_frame_with_different_filters(session: SparkSession, logs: WholeLogs) -> None:
    frame = read(session, logs, subscribe="orders")
    assert frame.where(f.col("partition") == 1).count() == 600
    assert frame.count() == 1750 + 600
    both = frame.where(f.col("offset") == 400).union(frame.where((f.col("partition") == 0) & (f.col("offset") == 5)))
    assert sorted((row.partition, row.offset) for row in both.collect()) == [(0, 5), (0, 400), (1, 400)]


def test_spark_keeps_the_filters_of_another_query(session: SparkSession, logs: WholeLogs) -> None:
    """Why filters are pushed only on request. As soon as this fails, they can be pushed always."""
    frame = read(session, logs, subscribe="orders", pushFilters="true")
    assert frame.where(f.col("partition") == 1).count() == 600
    assert frame.count() < 1750 + 600


def test_more_partitions_on_request(session: SparkSession, logs: WholeLogs) -> None:
    frame = read(session, logs, subscribe="orders", minPartitions="9")
    assert frame.rdd.getNumPartitions() >= 9
    assert frame.count() == 1750 + 600


def test_ranges_by_offset_and_time(session: SparkSession, logs: WholeLogs) -> None:
    frame = read(
        session,
        logs,
        assign='{"orders": [0]}',
        startingOffsets='{"orders": {"0": 100}}',
        endingOffsets='{"orders": {"0": 120}}',
    )
    rows = frame.orderBy("offset").collect()
    assert [row.offset for row in rows] == [*range(100, 120)]
    at_ms = round(rows[7].timestamp.timestamp() * 1000)
    later = read(session, logs, assign='{"orders": [0]}', startingTimestamp=str(at_ms))
    ((first,),) = later.agg(f.min("offset")).collect()
    assert first == 107


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "orders", "kafka.bootstrap.servers": "broker:9092"}, "is no option of kafka-tiered"),
        ({"subscribe": "absent"}, "nothing of it is in remote storage"),
        ({"assign": '{"retained": [0]}', "startingOffsets": '{"retained": {"0": 5}}'}, "failOnDataLoss=false"),
    ],
)
def test_what_is_refused(session: SparkSession, logs: WholeLogs, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=re.escape(said)):
        read(session, logs, **options).count()


def test_columns_of_ones_own_are_refused(session: SparkSession, logs: WholeLogs) -> None:
    reader = session.read.format(FORMAT).schema("value STRING").option("config", str(logs.config))
    with pytest.raises(PySparkException, match=r"leave out \.schema"):
        reader.option("subscribe", "orders").load().count()


@pytest.mark.parametrize("client", [None, "reports"])
def test_the_client_whose_quota_counts(
    logs: WholeLogs, caplog: pytest.LogCaptureFixture, client: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, fetch = set[str | None](), SharedQuotas.fetch

    def noted(quotas: SharedQuotas, broker_id: int, topic: str, client: str | None = None, **options: Any) -> Any:
        asked.add(client)
        return fetch(quotas, broker_id, topic, client, **options)

    monkeypatch.setattr(SharedQuotas, "fetch", noted)
    options = {"subscribe": "orders", "config": str(logs.config), "startingTimestamp": "1"}
    reader = KafkaTieredReader(options if client is None else {**options, "kafka.client.id": client})
    logs.app.configs.alter(ConfigEntity(EntityType.CLIENTS, "reports"), {NARROW_FETCH_QUOTA: "100000"}, author="test")
    with caplog.at_level("INFO"):
        partitions = reader.partitions()
        logs.app.configs.alter(ConfigEntity(EntityType.CLIENTS, "reports"), {NARROW_FETCH_QUOTA: None}, author="test")
        assert sum(batch.num_rows for each in partitions for batch in reader.read(each)) == 1750 + 600
    assert asked == {client or NAMELESS_CLIENT}
    assert any("the fetch quota holds it for" in each.getMessage() for each in caplog.records) == (client is not None)


def test_nothing_secret_is_pickled(logs: WholeLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import cloudpickle

    monkeypatch.setenv("TIERING_REMOTE_STORAGE__ACCESS_KEY_ID", "planted")
    monkeypatch.setenv("TIERING_REMOTE_STORAGE__SECRET_ACCESS_KEY", "planted-secret")
    reader = KafkaTieredReader({"subscribe": "orders", "config": str(logs.config)})
    pickled: Sequence[bytes] = [cloudpickle.dumps(each) for each in (reader, *reader.partitions(), PushedFilters())]
    assert len(pickled) == 4
    assert not any(b"planted-secret" in each or b"sqlite:" in each for each in pickled)
