"""Dynamic configs for Spark's configuration: `tiering.spark.conf.KEY`, and `tiering.spark.conf.DAG.KEY` for one DAG.

The value that a job gets for a key comes from the first of these that has one:

1. what the platform itself sets, such as one core for each executor: `why_refused` refuses these keys
2. the dynamic config of the job's DAG
3. the dynamic config for all DAGs
4. the platform's defaults, such as 512 MiB of memory for the driver and for each executor
5. the administrator's `spark-defaults.conf`, in the directory that `SPARK_CONF_DIR` names

Spark shows its configuration in the arguments of processes, on its pages and in event logs, so no secret may be in it.
Every user who may trigger `tiering_configs` may set these configs. So no such config can set what Spark loads or
starts, what protects its traffic, or what changes results: that belongs in the administrator's file. Only the keys of
`_ALLOWED` can be set, because Spark has too many keys, and each release more, for a list of all that are dangerous.
`spark.cores.max` can be set for DAGs that read; the platform lowers it to the share of their pool, if that is known.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from include.tiering.errors import SettingError, printable
from include.tiering.settings.catalogue import nearest
from include.tiering.settings.fields import has_password

SPARK_CONF_PREFIX: Final = "tiering.spark.conf."
BATCH_DAGS: Final = ("tiering_copy", "tiering_expiration")
"""DAGs whose Spark jobs run one Spark task each."""
READING_DAGS: Final = ("tiering_remote_log_sizes", "tiering_quality", "tiering_audit")
SPARK_DAGS: Final = (*BATCH_DAGS, *READING_DAGS)

_KEY: Final = re.compile(r"spark\.[A-Za-z0-9._-]{1,150}\Z")
_MOST_SHOWN: Final = 100
_MOST_CHARACTERS: Final = 500
_FILE: Final = "it belongs into spark-defaults.conf (mode 0600), in the directory that SPARK_CONF_DIR of Airflow names"
_SECRET: Final = re.compile(r"secret|passw|token|credential|access\.?key|api\.?key|private\.?key", re.IGNORECASE)
_ALLOWED: Final = re.compile(
    r"spark\.("
    r"(driver|executor)\.memory(Overhead(Factor)?)?|executor\.pyspark\.memory|memory\.(fraction|storageFraction)"
    r"|cores\.max|default\.parallelism|sql\.shuffle\.partitions|locality\.wait(\.(process|node|rack))?"
    r"|scheduler\.(maxRegisteredResourcesWaitingTime|minRegisteredResourcesRatio)"
    r"|network\.timeout|executor\.heartbeatInterval|rpc\.askTimeout"
    r"|shuffle\.compress|shuffle\.io\.(maxRetries|retryWait)|reducer\.max\w+|kryoserializer\.buffer(\.max)?"
    r"|eventLog\.(enabled|dir|compress|rolling\.(enabled|maxFileSize))|ui\.(enabled|port|retained\w+)|log\.level"
    r"|executor\.logs\.rolling\.(strategy|maxSize|maxRetainedFiles|enableCompression|time\.interval)"
    r")\Z"
)
"""Keys for memory, cores, partitions, time-outs, traffic, pages and logs; none loads code or changes a result."""
_LOG_LEVEL: Final = "spark.log.level"
_LOG_LEVELS: Final = ("WARN", "ERROR", "FATAL", "OFF")
_REPETITION: Final = r"speculation.*|task\.maxFailures|stage\.max\w*Attempts|(excludeOnFailure|blacklist)\..*"
_SHARE: Final = r"executor\.(cores|instances)|task\.cpus|dynamicAllocation\..*|tiering\..*|scheduler\..*"
_PLACE: Final = r"master|remote|api\.mode|submit\..*|app\.name|kubernetes\..*|yarn\..*|connect\..*"
_OWN: Final = r"local\.dir|(driver|executor)\.(extra|default)JavaOptions|log4j.*|worker\..*"
_PROTECTION: Final = (
    r"authenticate.*|network\.(crypto|sasl)\..*|io\.(encryption|crypto)\..*|ssl\..*|redaction\..*|sql\.redaction.*"
    r"|(.*\.)?acls(\..*)?|user\.groups\..*|ui\.filters|ui\.reverseProxy.*"
)
_REFUSED: Final = (
    (_REPETITION, "a copy and a deletion run once and only Airflow repeats them; jobs that read repeat tasks anyway"),
    (_SHARE, "a batch takes one core, and the platform divides the cluster among its pools"),
    (_PLACE, "the connection tiering_spark names the master, and jobs are submitted in client mode"),
    (_OWN, "the platform or the administrator of the cluster sets it"),
    (_PROTECTION, f"it protects secrets: {_FILE}"),
)
_OTHER: Final = (
    "it is not among the keys for memory, time-outs, partitions, event log, pages and logs; others may load or start "
    f"something, open a port or change a result, and if it is needed {_FILE}"
)


class SparkConf(NamedTuple):
    """A key of Spark's configuration, of the jobs of one DAG, or (None) of all jobs."""

    dag_id: str | None
    key: str


def parse_name(name: str) -> SparkConf:
    """Return what a name that begins with `SPARK_CONF_PREFIX` is about.

    Raises:
        SettingError: the name has no key of Spark's configuration, or names a DAG that starts no Spark job, or the key
            is refused; the message says why, and where the key can be set, if anywhere.
    """
    rest = name.removeprefix(SPARK_CONF_PREFIX)
    head, separator, tail = rest.partition(".")
    conf = SparkConf(None, rest) if head == "spark" or not separator else SparkConf(head, tail)
    if _KEY.match(conf.key) is None:
        raise SettingError(
            f"{printable(name[:_MOST_SHOWN])}: give {SPARK_CONF_PREFIX}KEY or {SPARK_CONF_PREFIX}DAG.KEY, with a key "
            "of Spark's configuration such as spark.executor.memory"
        )
    if conf.dag_id is not None and conf.dag_id not in SPARK_DAGS:
        raise SettingError(
            f"{printable(name[:_MOST_SHOWN])}: the DAG {printable(conf.dag_id)} starts no Spark job: "
            f"{nearest(conf.dag_id, list(SPARK_DAGS))}"
        )
    why = why_refused(conf)
    if why is not None:
        raise SettingError(f"{conf.key} cannot be set by {SPARK_CONF_PREFIX}: {why}")
    return conf


def why_refused(conf: SparkConf) -> str | None:
    """Return why the key cannot be set by a dynamic config; None if it can."""
    if _SECRET.search(conf.key):
        return f"Spark shows its configuration in process arguments, on its pages and in event logs: {_FILE}"
    if conf.key == "spark.cores.max" and conf.dag_id not in READING_DAGS:
        return f"a batch takes one core; it can be set for one of {', '.join(READING_DAGS)}"
    if _ALLOWED.match(conf.key) is not None:
        return None
    key = conf.key.removeprefix("spark.")
    return next((why for pattern, why in _REFUSED if re.fullmatch(pattern, key)), _OTHER)


def checked_value(conf: SparkConf, text: str) -> str:
    """Return the value as it is stored, without spaces around it.

    Raises:
        SettingError: the key cannot have this value. The message does not repeat a value that holds a password.
    """
    value = text.strip()
    if has_password(value):
        raise SettingError(f"the value of {conf.key} is a URL with a password, which Spark would show: {_FILE}")
    if not value or not value.isprintable() or len(value) > _MOST_CHARACTERS:
        raise SettingError(f"{conf.key} needs a value of 1 to {_MOST_CHARACTERS} printable characters")
    if conf.key == "spark.cores.max" and not (value.isascii() and value.isdecimal() and int(value) >= 1):
        raise SettingError(f"{conf.key} is {printable(value[:_MOST_SHOWN])!r}: give a whole number of 1 or more")
    if conf.key == _LOG_LEVEL and value.upper() not in _LOG_LEVELS:
        raise SettingError(
            f"{conf.key} is {printable(value[:_MOST_SHOWN])!r}: give one of {', '.join(_LOG_LEVELS)}, as Spark writes "
            "plans and requests at the others"
        )
    return value


def spark_conf_of(dag_id: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the keys and values that `configs`, those of the default broker entity, set for the jobs of this DAG.

    The configs of the DAG win over those for all DAGs. Keys and values that this version refuses are ignored.
    """
    found: dict[str | None, dict[str, str]] = {None: {}, dag_id: {}}
    for name, value in configs.items():
        if name.startswith(SPARK_CONF_PREFIX):
            try:
                conf = parse_name(name)
                checked = checked_value(conf, value)
            except SettingError:
                continue
            if conf.dag_id in found:
                found[conf.dag_id][conf.key] = checked
    return found[None] | found[dag_id]
