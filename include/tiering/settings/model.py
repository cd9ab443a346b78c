"""The settings themselves. One field is one setting: type, default, bounds and sentence stand together here only.

A deployment setting is called `<section>.<field>`. A setting of a `DynamicSection` is called like Kafka's configs,
with dots for underscores: `copier.batch_max_seconds` here is `tiering.copier.batch.max.seconds` to the user. Those that
are dynamic may be changed while jobs run, by values in SQL that win over all other places.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)

from include.tiering.errors import SettingError
from include.tiering.settings.connections import (
    DEFAULT_PROTOCOL,
    DEFAULT_TIMEOUT_MS,
    LEAST_TIMEOUT_MS,
    ConnectionSettings,
    SecurityProtocol,
    Servers,
)
from include.tiering.settings.fields import (
    MOST_INT,
    QUEUE_NAME,
    SPARK_RESOURCE_NAME,
    Section,
    check_directories,
    check_endpoint_url,
    check_metadata_url,
    check_topic_pattern,
    default_metadata_url,
    split_commas,
    split_log_dirs,
)
from include.tiering.settings.operational import (
    AbandonedCopySettings,
    ClockSettings,
    CopierSettings,
    CopyFairnessSettings,
    CopyQuotaWindowSettings,
    ExpirationSettings,
    FetchQuotaWindowSettings,
    OnTopicSettings,
    QueueSettings,
    ReaderSettings,
    SupersededSettings,
    TombstoneSettings,
    TopicQuotasSettings,
)
from include.tiering.settings.remote_storage import RemoteStorageSettings
from include.tiering.settings.use_cases import (
    AuditSettings,
    DataDocsSettings,
    HandoverSettings,
    PricesSettings,
    SizesSettings,
    VerdictSettings,
    VerifySettings,
)

DEFAULT_ORIGIN: Final = "default"
DEFAULT_PUBLISHER_ID: Final = 424_242
DEFAULT_SETTLE_MS: Final = 40_000

TopicPattern = Annotated[str, BeforeValidator(check_topic_pattern)]


class ClusterSettings(ConnectionSettings):
    """The Kafka cluster that this deployment serves."""

    name: str = Field(
        default="kafka", min_length=1, description="Label of the cluster in reports. Identity is the cluster id."
    )
    bootstrap_servers: Servers | None = Field(
        default=None,
        description="`host:port,host:port` of the brokers: they are asked for topics, leaders and exact offsets, and "
        "nothing is planned while they do not answer. Unset: cluster metadata comes from `__cluster_metadata-0`, and "
        "offsets are the lower bounds that log directories show.",
    )
    security_protocol: SecurityProtocol = Field(default=DEFAULT_PROTOCOL, description="What the listener speaks.")
    request_timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS,
        ge=LEAST_TIMEOUT_MS,
        le=MOST_INT,
        description="How long brokers may take for one answer, in milliseconds, the connection included.",
    )


class MetadataTopicSettings(ConnectionSettings):
    """The principal that writes `__remote_log_metadata`. What is unset is the cluster's."""

    bootstrap_servers: Servers | None = Field(
        default=None,
        description="`host:port,host:port`, where the publisher has a listener of its own. What is unset in this "
        "section is the cluster's; but user and password go together, and so do certificate, key and its password: "
        "with one of them set here, none is the cluster's.",
    )
    broker_id: int = Field(
        default=DEFAULT_PUBLISHER_ID,
        ge=0,
        le=MOST_INT,
        description="`broker.id` that published records carry: one that no broker of the cluster has, so that anybody "
        "sees who wrote them.",
    )
    settle_ms: int = Field(
        default=DEFAULT_SETTLE_MS,
        ge=0,
        le=MOST_INT,
        description="How long after a publisher died a record of it may still arrive, in milliseconds: the next one "
        "waits so long before it reads what is there.",
    )


class TopicsSettings(Section):
    """Which topics are tiered by this platform."""

    include: Annotated[tuple[TopicPattern, ...], BeforeValidator(split_commas)] = Field(
        default=(),
        description='Topic names or shell-style patterns to copy, `["*"]` for all. Empty: nothing is tiered.',
    )


class LogDir(Section):
    """One log directory of one broker: what `log.dirs` of that broker names."""

    broker_id: int = Field(ge=0, description="`node.id` of the broker that owns the directory.")
    path: Path = Field(
        description="Absolute path, readable where the plan is made and where the job runs: anywhere, unless `queue` "
        "or `spark_resource` says where. `./tiering copy` reads it in its own process whatever they say."
    )
    queue: str | None = Field(
        default=None,
        pattern=QUEUE_NAME,
        description="Airflow queue of a worker on the broker's host or with its volume: batches for this directory run "
        "there alone. Letters, digits, `.`, `_` and `-`. Unset: any worker can read the path.",
    )
    spark_resource: str | None = Field(
        default=None,
        pattern=SPARK_RESOURCE_NAME,
        description="Resource of Spark executors that can read the path: the job asks for one of it. Letters, digits, "
        "`_` and `-`. Unset: any executor can. Ignored by a `local` master, which runs the job where the queue says.",
    )


class MetadataSettings(Section):
    """Where the platform records what it did."""

    url: Annotated[SecretStr, BeforeValidator(check_metadata_url)] = Field(
        default_factory=lambda: SecretStr(default_metadata_url({})),
        description="SQLAlchemy URL: `sqlite:////path` for one host, "
        "`postgresql+psycopg://user:password@host/database` in production.",
        json_schema_extra={
            "default_text": "sqlite:///$XDG_STATE_HOME/tiering/metadata.sqlite (~/.local/state if unset)"
        },
    )


class AirflowSettings(Section):
    """The Airflow that runs the DAGs: the truth of how large the pools are."""

    url: Annotated[str, BeforeValidator(check_endpoint_url)] = Field(
        default="http://localhost:8080",
        description="Address of Airflow's API server, asked for the sizes of the pools and told new ones. Airflow's "
        "own tasks use `[tiering] api_login_file` of airflow.cfg where no login is set here.",
    )
    login_file: Path | None = Field(
        default=None,
        description='JSON file `{"username": ..., "password": ...}`, readable by its owner alone: a user with the role '
        "`viewer`, or `op` to resize pools. `make up` writes one.",
    )
    token: SecretStr | None = Field(
        default=None, description="Token of Airflow's API, instead of a login. Airflow lets one expire after a day."
    )


class TieringSettings(Section):
    """All settings, frozen. `TieringSettings()` holds the defaults; `load_settings` reads the places they come from."""

    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    metadata_topic: MetadataTopicSettings = Field(default_factory=MetadataTopicSettings)
    topics: TopicsSettings = Field(default_factory=TopicsSettings)
    log_dirs: Annotated[tuple[LogDir, ...], BeforeValidator(split_log_dirs)] = Field(
        default=(),
        description="Log directories of the brokers: a list of `{broker_id, path}`, with optional `queue` and "
        "`spark_resource`; in the environment also `ID:PATH,ID:PATH`.",
    )
    remote_storage: RemoteStorageSettings = Field(default_factory=RemoteStorageSettings)
    metadata: MetadataSettings = Field(default_factory=MetadataSettings)
    airflow: AirflowSettings = Field(default_factory=AirflowSettings)
    copier: CopierSettings = Field(default_factory=CopierSettings)
    copy_fairness: CopyFairnessSettings = Field(default_factory=CopyFairnessSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    copy_quota_window: CopyQuotaWindowSettings = Field(default_factory=CopyQuotaWindowSettings)
    fetch_quota_window: FetchQuotaWindowSettings = Field(default_factory=FetchQuotaWindowSettings)
    topic_quotas: TopicQuotasSettings = Field(default_factory=TopicQuotasSettings)
    reader: ReaderSettings = Field(default_factory=ReaderSettings)
    sizes: SizesSettings = Field(default_factory=SizesSettings)
    prices: PricesSettings = Field(default_factory=PricesSettings)
    expiration: ExpirationSettings = Field(default_factory=ExpirationSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    abandoned_copy: AbandonedCopySettings = Field(default_factory=AbandonedCopySettings)
    on_topic: OnTopicSettings = Field(default_factory=OnTopicSettings)
    superseded: SupersededSettings = Field(default_factory=SupersededSettings)
    clock: ClockSettings = Field(default_factory=ClockSettings)
    tombstone: TombstoneSettings = Field(default_factory=TombstoneSettings)
    verdict: VerdictSettings = Field(default_factory=VerdictSettings)
    verify: VerifySettings = Field(default_factory=VerifySettings)
    data_docs: DataDocsSettings = Field(default_factory=DataDocsSettings)
    handover: HandoverSettings = Field(default_factory=HandoverSettings)

    _origins: Mapping[str, str] = PrivateAttr(default_factory=lambda: MappingProxyType({}))

    @field_validator("log_dirs")
    @classmethod
    def _distinct_directories(cls, log_dirs: tuple[LogDir, ...]) -> tuple[LogDir, ...]:
        check_directories([log_dir.path for log_dir in log_dirs])
        return log_dirs

    def model_post_init(self, context: Any, /) -> None:
        """The validation context holds the origin of every value that is not a default, by setting name."""
        self._origins = MappingProxyType(dict(context or {}))

    def with_topics(self, patterns: Sequence[str]) -> Self:
        """The same settings for topics that a command was given. Raises SettingError for what is no pattern."""
        try:
            topics = TopicsSettings(include=tuple(patterns))
        except ValidationError as error:
            raise SettingError(f"topics {list(patterns)}: {error.errors()[0]['msg']}") from None
        return self.model_copy(update={"topics": topics})

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """The same values, some of which came from elsewhere: origin by setting name."""
        copied = self.model_copy()
        copied.model_post_init({**self._origins, **origins})
        return copied

    def origin(self, name: str) -> str:
        """Where the value of the setting called `name` came from, in words."""
        return self._origins.get(name, DEFAULT_ORIGIN)
