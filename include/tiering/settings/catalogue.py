"""All settings: their sections, the table of them, and dynamic configs applied to loaded settings.

A field of a section is a setting, declared with its type, default, bounds and description, here and in `connections`,
`operational`, `remote_storage` and `use_cases`. Its name is `<section>.<field>`, except `log_dirs` and settings of a
`DynamicSection`, which are named like Kafka's configs, with dots: the field `copier.batch_max_seconds` is the setting
`tiering.copier.batch.max.seconds`.

The table (`all_settings`) has each setting's names, environment name, accepted values as text, default and description.
Dynamic settings may be changed while jobs run; a dynamic config overrides all other sources. This module does not store
dynamic configs.
"""

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Final, Literal, Self, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo

from include.tiering.errors import SettingError, printable
from include.tiering.settings.connections import ClusterSettings, MetadataTopicSettings
from include.tiering.settings.fields import (
    QUEUE_NAME,
    SPARK_RESOURCE_NAME,
    DynamicSection,
    Loosens,
    Section,
    check_directories,
    check_endpoint_url,
    check_metadata_url,
    check_topic_pattern,
    default_metadata_url,
    mask_url,
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
    ReadSettings,
    SupersededSettings,
    TombstoneSettings,
    TopicQuotasSettings,
)
from include.tiering.settings.remote_storage import RemoteStorageSettings
from include.tiering.settings.use_cases import (
    AuditSettings,
    DataDocsSettings,
    HandoverSettings,
    LeadersSettings,
    PricesSettings,
    RestoreSettings,
    SizesSettings,
    SuitesSettings,
    VerdictSettings,
    VerifySettings,
)
from include.tiering.units import accepted_suffixes

DEFAULT_ORIGIN: Final = "default"

TopicPattern = Annotated[str, BeforeValidator(check_topic_pattern)]


class TopicsSettings(Section):
    """The topics that this platform tiers."""

    include: Annotated[tuple[TopicPattern, ...], BeforeValidator(split_commas)] = Field(
        default=(),
        description='Names or shell-style patterns of the topics to copy, `["*"]` for all. Empty: no topic is copied.',
    )


class LogDir(Section):
    """A log directory of a broker: an entry of that broker's `log.dirs`."""

    broker_id: int = Field(ge=0, description="`node.id` of the broker that owns the directory.")
    path: Path = Field(
        description="Absolute path, readable where the job runs: on any worker, unless `queue` or `spark_resource` "
        "restricts it. `./tiering copy` reads it in its own process in any case. Log dirs of different queues may "
        "have the same path."
    )
    queue: str | None = Field(
        default=None,
        pattern=QUEUE_NAME,
        description="Airflow queue of a worker on the broker's host or with its volume: this directory is scanned, and "
        "batches for it run, only there. Letters, digits, `.`, `_` and `-`. Unset: any worker can read the path.",
    )
    spark_resource: str | None = Field(
        default=None,
        pattern=SPARK_RESOURCE_NAME,
        description="Resource of Spark executors that can read the path: the job requests 1 of it. Letters, digits, "
        "`_` and `-`. Unset: any executor can. A `local` master ignores it: the job runs on the queue's worker.",
    )


class MetadataSettings(Section):
    """The platform's database."""

    url: Annotated[SecretStr, BeforeValidator(check_metadata_url)] = Field(
        default_factory=lambda: SecretStr(default_metadata_url({})),
        description="SQLAlchemy URL: `sqlite:////path` for one host, "
        "`postgresql+psycopg://user:password@host/database` in production.",
        json_schema_extra={
            "default_text": "sqlite:///$XDG_STATE_HOME/tiering/metadata.sqlite (~/.local/state if unset)"
        },
    )


class AirflowSettings(Section):
    """The Airflow that runs the DAGs; its sizes of pools are authoritative."""

    url: Annotated[str, BeforeValidator(check_endpoint_url)] = Field(
        default="http://localhost:8080",
        description="Address of Airflow's API server, to read and change sizes of pools, and to see which DAGs are "
        "paused. If no login is set "
        "here, Airflow's own tasks use their own address and `[tiering] api_login_file` of airflow.cfg.",
    )
    login_file: Path | None = Field(
        default=None,
        description='JSON file `{"username": ..., "password": ...}`, readable only by its owner, with the login of a '
        "user who has the role `viewer`, or `op` to resize pools. `make up` writes such a file.",
    )
    token: SecretStr | None = Field(
        default=None, description="Token of Airflow's API, instead of a login. By default, tokens expire after a day."
    )


class TieringSettings(Section):
    """All settings, frozen. `TieringSettings()` holds the defaults; `load_settings` reads all sources."""

    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    metadata_topic: MetadataTopicSettings = Field(default_factory=MetadataTopicSettings)
    topics: TopicsSettings = Field(default_factory=TopicsSettings)
    log_dirs: Annotated[tuple[LogDir, ...], BeforeValidator(split_log_dirs)] = Field(
        default=(),
        description="Log directories of the brokers: a list of `{broker_id, path}`, with optional `queue` and "
        "`spark_resource`; in the environment also `ID:PATH,ID:PATH`. Empty, with `cluster.bootstrap_servers` set: "
        "segments are read from the leaders, over the network.",
    )
    leaders: LeadersSettings = Field(default_factory=LeadersSettings)
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
    read: ReadSettings = Field(default_factory=ReadSettings)
    sizes: SizesSettings = Field(default_factory=SizesSettings)
    prices: PricesSettings = Field(default_factory=PricesSettings)
    restore: RestoreSettings = Field(default_factory=RestoreSettings)
    expiration: ExpirationSettings = Field(default_factory=ExpirationSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    abandoned_copy: AbandonedCopySettings = Field(default_factory=AbandonedCopySettings)
    on_topic: OnTopicSettings = Field(default_factory=OnTopicSettings)
    superseded: SupersededSettings = Field(default_factory=SupersededSettings)
    clock: ClockSettings = Field(default_factory=ClockSettings)
    tombstone: TombstoneSettings = Field(default_factory=TombstoneSettings)
    verdict: VerdictSettings = Field(default_factory=VerdictSettings)
    verify: VerifySettings = Field(default_factory=VerifySettings)
    suites: SuitesSettings = Field(default_factory=SuitesSettings)
    data_docs: DataDocsSettings = Field(default_factory=DataDocsSettings)
    handover: HandoverSettings = Field(default_factory=HandoverSettings)

    _origins: Mapping[str, str] = PrivateAttr(default_factory=lambda: MappingProxyType({}))

    @field_validator("log_dirs")
    @classmethod
    def _distinct_directories(cls, log_dirs: tuple[LogDir, ...]) -> tuple[LogDir, ...]:
        # Brokers of different hosts, each with a queue of its own, usually have their log dirs at the same path.
        for queue in {None, *(log_dir.queue for log_dir in log_dirs)}:
            check_directories([log_dir.path for log_dir in log_dirs if log_dir.queue in (None, queue)])
        return log_dirs

    def model_post_init(self, context: Any, /) -> None:
        """Take the origins of values, by setting name, from the validation context."""
        self._origins = MappingProxyType(dict(context or {}))

    def with_topics(self, patterns: Sequence[str]) -> Self:
        """Return these settings with other topic patterns. Raises SettingError for an invalid pattern."""
        try:
            topics = TopicsSettings(include=tuple(patterns))
        except ValidationError as error:
            raise SettingError(f"topics {list(patterns)}: {error.errors()[0]['msg']}") from None
        return self.model_copy(update={"topics": topics})

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """Return these settings with other origins of some values; `origins` is by setting name."""
        copied = self.model_copy()
        copied.model_post_init({**self._origins, **origins})
        return copied

    def origin(self, name: str) -> str:
        """Return the origin of the value of a setting, as text."""
        return self._origins.get(name, DEFAULT_ORIGIN)


ENVIRONMENT_PREFIX: Final = "TIERING_"
CONFIG_VARIABLE: Final = "TIERING_CONFIG"
_OWN_PREFIX: Final = "tiering."


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table. `path` leads to the field in TieringSettings; `accepts` says which values are accepted.

    A stored value above `stored_at_most` counts as that.
    """

    name: str
    path: tuple[str, ...]
    accepts: str
    unit: str | None
    default: str
    sentence: str
    dynamic: bool
    secret: bool
    is_list: bool
    aliases: tuple[str, ...] = ()
    loosens: Loosens | None = None
    stored_at_most: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the setting, then the other names under which it may be set."""
        return (self.name, *self.aliases)

    @property
    def environment_name(self) -> str:
        """`remote_storage.url` -> `TIERING_REMOTE_STORAGE__URL`; a leading `tiering.` is not repeated."""
        return environment_name(self.name)

    def value(self, settings: TieringSettings) -> Any:
        found: Any = settings
        for attribute in self.path:
            found = getattr(found, attribute)
        return found

    def text(self, settings: TieringSettings) -> str:
        """Return the value as a user writes it. Do not use it for secrets and lists."""
        return _value_text(self.value(settings))

    def shown(self, settings: TieringSettings) -> Any:
        """Return the value as JSON may show it, with secrets masked."""
        return _shown(self.value(settings))


@cache
def all_settings() -> tuple[Setting, ...]:
    """Return all settings in the order of their declaration."""
    rows: list[Setting] = []
    for section_name, section in TieringSettings.model_fields.items():
        model = section.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            rows.extend(_row(model, section_name, name, field) for name, field in model.model_fields.items())
        else:
            rows.append(_setting(section_name, (section_name,), section))
    return tuple(rows)


@cache
def by_name() -> dict[str, Setting]:
    """Return all settings by name and by alias."""
    return {name: setting for setting in all_settings() for name in setting.names}


def current_name(name: str) -> str:
    """Return the current name of a setting, given any of its names; other text is returned unchanged."""
    setting = by_name().get(name)
    return name if setting is None else setting.name


def former_names(name: str) -> tuple[str, ...]:
    """Return the aliases of a setting, given any of its names; its value may be stored under one of them."""
    setting = by_name().get(name)
    return () if setting is None else setting.aliases


@cache
def by_environment_name() -> dict[str, Setting]:
    return {environment_name(name): setting for name, setting in by_name().items()}


def nearest(wrong: str, names: list[str]) -> str:
    """Return a hint with the known name most similar to `wrong`, or with all names if none is similar."""
    found = difflib.get_close_matches(wrong, names, n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else f"known are {', '.join(sorted(names))}"


def environment_name(name: str) -> str:
    """Return the environment variable of a setting's name."""
    return ENVIRONMENT_PREFIX + name.removeprefix(_OWN_PREFIX).replace(".", "__").upper()


def _row(model: type[BaseModel], section_name: str, field_name: str, field: FieldInfo) -> Setting:
    if issubclass(model, DynamicSection):
        name = f"{model.prefix}.{field_name.replace('_', '.')}"
    else:
        name = f"{section_name}.{field_name}"
    return _setting(name, (section_name, field_name), field)


def _setting(name: str, path: tuple[str, ...], field: FieldInfo) -> Setting:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    unit, aliases = extra.get("unit"), extra.get("aliases")
    return Setting(
        name=name,
        path=path,
        accepts=str(extra.get("accepts") or _accepts(name, field)),
        unit=unit if isinstance(unit, str) else None,
        default=str(extra.get("default_text") or _value_text(field.default)),
        sentence=field.description or "",
        dynamic=bool(extra.get("dynamic")),
        secret=_plain_type(field.annotation) is SecretStr,
        is_list=get_origin(_plain_type(field.annotation)) is tuple,
        aliases=tuple(map(str, aliases)) if isinstance(aliases, list) else (),
        loosens=Loosens(str(loosens)) if (loosens := extra.get("loosens")) else None,
        stored_at_most=most if isinstance(most := extra.get("stored_at_most"), int) else None,
    )


def _accepts(name: str, field: FieldInfo) -> str:
    kind = _plain_type(field.annotation)
    if name == "log_dirs":
        return "list of {" + ", ".join(LogDir.model_fields) + "}"
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "list of text"
    if kind is bool:
        return "true or false"
    words = {int: "integer", float: "number"}.get(kind, "text")
    for bound in field.metadata:
        if isinstance(bound, Ge):
            words += f", at least {bound.ge}"
        elif isinstance(bound, Le):
            words += f", at most {bound.le}"
        elif isinstance(bound, MinLen):
            words += ", not empty"
    return words


def _plain_type(annotation: Any) -> Any:
    """Return the type inside `Annotated[...]` and `... | None`."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _plain_type(next(kind for kind in get_args(annotation) if kind is not type(None)))
    return annotation


def _value_text(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return "[]" if value == () else str(value)


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        masked = mask_url(value.get_secret_value())
        return masked if "://" in masked else "***"
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Path):
        return str(value)
    return [_shown(item) for item in value] if isinstance(value, tuple) else value


_log: Final = logging.getLogger(__name__)
DYNAMIC_ORIGIN: Final = "dynamic config"
_MOST_SHOWN: Final = 100


@cache
def dynamic_settings() -> tuple[Setting, ...]:
    """Return the settings that may be changed while jobs run."""
    return tuple(setting for setting in all_settings() if setting.dynamic)


def canonical_value(setting: Setting, text: str) -> str:
    """Return `text` in the form in which it is stored: ``" 007"`` -> ``"7"``, ``"True"`` -> ``"true"``.

    Raises:
        SettingError: the value is not accepted; the message names the value and what is accepted.
    """
    return setting.text(_with_section(TieringSettings(), setting, {setting: text}))


def with_dynamic(
    settings: TieringSettings, values: Mapping[str, str], *, origin: str = DYNAMIC_ORIGIN
) -> TieringSettings:
    """Return the settings with `values`, by name or alias, over them. Names of no dynamic setting are ignored.

    Raises:
        SettingError: this version does not accept one of the values.
    """
    named = ((by_name()[name], text) for name, text in values.items() if name in by_name())
    known = {setting: _lowered(setting, text) for setting, text in named if setting.dynamic}
    for setting in known:
        settings = _with_section(settings, setting, known)
    return settings.with_origins({setting.name: origin for setting in known})


def _lowered(setting: Setting, text: str) -> str:
    """Return a stored value, or the greatest accepted one if an earlier version accepted more."""
    most = setting.stored_at_most
    if most is None or not text.strip().isdecimal() or int(text) <= most:
        return text
    _warn_of_lowered(setting.name, text, most)
    return str(most)


@cache
def _warn_of_lowered(name: str, text: str, most: int) -> None:
    """Warn once in a process: a batch that runs reads its settings each second."""
    _log.warning("%s is stored as %s: %d is used, the most that this version accepts", name, text, most)


def _with_section(settings: TieringSettings, setting: Setting, texts: Mapping[Setting, str]) -> TieringSettings:
    """Return the settings with a new, validated section of `setting`, which has all values of `texts` for it."""
    section_name, _ = setting.path
    section: Section = getattr(settings, section_name)
    values: dict[str, Any] = section.model_dump()
    values |= {known.path[1]: text.strip() for known, text in texts.items() if known.path[0] == section_name}
    try:
        made = type(section).model_validate(values)
    except ValidationError as error:
        raise SettingError(_sentence(error, section_name, texts)) from None
    return settings.model_copy(update={section_name: made})


def _sentence(error: ValidationError, section_name: str, texts: Mapping[Setting, str]) -> str:
    field = error.errors()[0]["loc"][0]
    setting = next(text for text in texts if text.path == (section_name, field))
    unit, hint = f" ({setting.unit})" if setting.unit else "", accepted_suffixes(setting.unit)
    return f"{setting.name} is {printable(texts[setting][:_MOST_SHOWN])!r}: accepted: {setting.accepts}{unit}{hint}"
