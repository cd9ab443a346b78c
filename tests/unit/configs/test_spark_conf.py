"""Dynamic configs for Spark's configuration: what may be set, for whom, and what wins."""

import pytest

from include.tiering.configs.config_catalogue import config_on
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.report import describe
from include.tiering.configs.rules import checked_changes
from include.tiering.configs.spark_conf import SPARK_CONF_PREFIX, SparkConf, parse_name, spark_conf_of
from include.tiering.errors import SettingError
from include.tiering.settings import load_settings

MEMORY = "tiering.spark.conf.spark.executor.memory"
OF_COPIES = "tiering.spark.conf.tiering_copy.spark.executor.memory"


def test_a_name_says_which_key_of_which_dag() -> None:
    assert parse_name(MEMORY) == SparkConf(None, "spark.executor.memory")
    assert parse_name(OF_COPIES) == SparkConf("tiering_copy", "spark.executor.memory")
    assert parse_name("tiering.spark.conf.tiering_audit.spark.cores.max").key == "spark.cores.max"


@pytest.mark.parametrize(
    "key",
    [
        "spark.driver.memory",
        "spark.eventLog.dir",
        "spark.eventLog.enabled",
        "spark.eventLog.rolling.maxFileSize",
        "spark.executor.logs.rolling.maxRetainedFiles",
        "spark.kryoserializer.buffer.max",
        "spark.locality.wait.node",
        "spark.memory.storageFraction",
        "spark.reducer.maxSizeInFlight",
        "spark.rpc.askTimeout",
        "spark.scheduler.minRegisteredResourcesRatio",
        "spark.shuffle.io.maxRetries",
        "spark.executor.memoryOverhead",
        "spark.executor.pyspark.memory",
        "spark.network.timeout",
        "spark.sql.shuffle.partitions",
        "spark.ui.enabled",
    ],
)
def test_what_an_operator_tunes_can_be_set(key: str) -> None:
    assert config_on(ALL_BROKERS, SPARK_CONF_PREFIX + key).canonical(" 3 ") == "3"


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "Spark shows its configuration in process arguments"),
        ("spark.hadoop.fs.s3a.access.key", "Spark shows its configuration"),
        ("spark.authenticate.secret", "Spark shows its configuration"),
        ("spark.ssl.keyPassword", "Spark shows its configuration"),
        ("spark.network.crypto.enabled", "it protects secrets"),
        ("spark.redaction.regex", "it protects secrets"),
        ("spark.task.maxFailures", "run once"),
        ("spark.speculation", "run once"),
        ("spark.stage.maxConsecutiveAttempts", "run once"),
        ("spark.dynamicAllocation.maxExecutors", "divides the cluster"),
        ("spark.executor.cores", "divides the cluster"),
        ("spark.cores.max", "a batch takes one core; it can be set for one of tiering_remote_log_sizes"),
        ("tiering_copy.spark.cores.max", "a batch takes one core"),
        ("spark.submit.deployMode", "client mode"),
        ("spark.master", "tiering_spark names the master"),
        ("spark.executor.extraJavaOptions", "the administrator of the cluster"),
        ("spark.blacklist.enabled", "run once"),
        ("spark.ui.view.acls", "it protects secrets"),
        ("spark.admin.acls", "it protects secrets"),
        ("spark.admin.acls.groups", "it protects secrets"),
        ("spark.modify.acls", "it protects secrets"),
        ("spark.user.groups.mapping", "it protects secrets"),
        ("spark.driver.defaultExtraClassPath", "load or start something"),
        ("spark.sql.execution.pyspark.python", "load or start something"),
        ("spark.sql.hive.metastore.jars", "load or start something"),
        ("spark.shuffle.manager", "load or start something"),
        ("spark.eventLog.compression.codec", "load or start something"),
        ("spark.driver.host", "open a port"),
        ("spark.driver.port", "open a port"),
        ("spark.blockManager.port", "open a port"),
        ("spark.sql.ansi.enabled", "change a result"),
        ("spark.sql.legacy.timeParserPolicy", "change a result"),
        ("spark.sql.optimizer.excludedRules", "change a result"),
        ("spark.kryoserializer.buffer.maximal", "load or start something"),
        ("spark.memory.fraction.x", "load or start something"),
        ("spark.plugins", "load or start something"),
        ("spark.jars.packages", "load or start something"),
        ("spark.pyspark.python", "load or start something"),
        ("spark.executorEnv.TIERING_X", "load or start something"),
        ("spark.executor.resource.gpu.discoveryScript", "load or start something"),
        ("tiering_configs.spark.ui.enabled", "starts no Spark job"),
        ("executor.memory", "a key of Spark's configuration|starts no Spark job"),
        ("spark.", "with a key of Spark's configuration"),
        ("spark.a b", "with a key of Spark's configuration"),
    ],
)
def test_what_would_leak_a_secret_or_break_a_rule_is_refused_with_the_reason(key: str, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        checked_changes(ALL_BROKERS, {SPARK_CONF_PREFIX + key: "1"})


def test_values_are_one_line_without_a_password() -> None:
    config = config_on(ALL_BROKERS, "tiering.spark.conf.spark.eventLog.dir")
    assert config.canonical("s3a://logs/spark") == "s3a://logs/spark"
    for value in ("https://user:s3cret@host/logs", "", "a\nb", "x" * 501):
        with pytest.raises(SettingError) as refused:
            config.canonical(value)
        assert "s3cret" not in str(refused.value)
    with pytest.raises(SettingError, match="a whole number"):
        config_on(ALL_BROKERS, "tiering.spark.conf.tiering_audit.spark.cores.max").canonical("many")


def test_jobs_log_no_more_than_warnings() -> None:
    config = config_on(ALL_BROKERS, "tiering.spark.conf.spark.log.level")
    assert config.canonical(" ERROR ") == "ERROR"
    for level in ("INFO", "debug", "ALL"):
        with pytest.raises(SettingError, match="WARN, ERROR, FATAL, OFF"):
            config.canonical(level)


def test_they_are_set_on_the_default_of_brokers() -> None:
    with pytest.raises(SettingError, match="belongs to brokers: default"):
        config_on(ConfigEntity(EntityType.BROKERS, "1"), MEMORY)


def test_the_config_of_a_dag_wins_over_that_of_all() -> None:
    configs = {
        MEMORY: "1g",
        OF_COPIES: "2g",
        "tiering.spark.conf.spark.ui.enabled": "true",
        "tiering.spark.conf.spark.task.maxFailures": "9",  # refused by now
        "tiering.spark.conf.spark.log.level": "INFO",  # this, too
        "tiering.copier.max.batches": "4",
    }
    assert spark_conf_of("tiering_copy", configs) == {"spark.executor.memory": "2g", "spark.ui.enabled": "true"}
    assert spark_conf_of("tiering_expiration", configs) == {"spark.executor.memory": "1g", "spark.ui.enabled": "true"}


def test_a_description_shows_what_is_set() -> None:
    described = describe(ALL_BROKERS, {ALL_BROKERS: {MEMORY: "1g", "from.a.newer.version": "1"}}, load_settings())
    assert [(config.name, config.value, config.source) for config in described[-2:]] == [
        ("from.a.newer.version", "1", "dynamic, unknown here"),
        (MEMORY, "1g", "dynamic default"),
    ]
