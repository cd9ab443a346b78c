"""The page docs/json.md: which members the JSON document of each command has.

The shapes are TypedDicts of the use cases: in `report.py`, in `documents.py` beside a long one, or in the module that
makes the document, such as `operations/doctor.py`. Type checking compares them with the functions that make the
documents. This module only names the document of each command, and writes the shapes down.
"""

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

from include.tiering.audit.report import AcceptedDocument, AuditDocument, WithdrawnRemovalsDocument
from include.tiering.configs.report import AlterationDocument, ConfigsDocument
from include.tiering.configs.usage_report import PoolsDocument
from include.tiering.copying.documents import (
    CopyDocument,
    CopyPlanDocument,
    FollowDocument,
    ScanDocument,
    SkipDocument,
)
from include.tiering.expiration.documents import ExpirationDocument, TruncationDocument, WithdrawalDocument
from include.tiering.expiration.preview import RetentionPreviewDocument
from include.tiering.handover.rehearsal import RehearsalDocument
from include.tiering.handover.report import HandoverChecksDocument, HandoverDocument
from include.tiering.metadata_sync.report import IngestDocument, PublicationDocument
from include.tiering.operations.attention import AttentionDocument
from include.tiering.operations.backfill import BackfillDocument
from include.tiering.operations.broker_configs import (
    BrokerAlterationDocument,
    BrokerConfigsDocument,
    TogetherDocument,
)
from include.tiering.operations.doctor import DoctorDocument
from include.tiering.operations.events import EventsDocument
from include.tiering.operations.quality import QualityDocument
from include.tiering.operations.readiness import ReadinessDocument
from include.tiering.operations.set_up import SetUpDocument
from include.tiering.operations.status import PauseDocument, StatusDocument
from include.tiering.operations.store_owner import RelocationDocument, TakeOverDocument
from include.tiering.operations.survey import SurveyDocument
from include.tiering.operations.throughput import ThroughputDocument
from include.tiering.operations.timeline import TimelineDocument
from include.tiering.reading.report import FetchDocument, RecordsDocument
from include.tiering.recovery.documents import AdoptionDocument, RebuildDocument
from include.tiering.recovery.drill import DrillDocument
from include.tiering.restoring.report import RestoreDocument, RestorePlanDocument
from include.tiering.sizes.documents import LogDirsDocument, SizesDocument
from include.tiering.verification.report import VerificationDocument, VerificationPlanDocument

DOCUMENTS: Final[Mapping[str, Mapping[str, type]]] = {
    "scan": {"": ScanDocument},
    "plan": {"": CopyPlanDocument},
    "copy": {"": CopyDocument},
    "skip": {"": SkipDocument, "--follow-source-from": FollowDocument},
    "verify": {"": VerificationDocument, "--dry-run": VerificationPlanDocument},
    "sizes": {"": SizesDocument},
    "log-dirs": {"": LogDirsDocument},
    "expire": {"": ExpirationDocument, "--withdraw": WithdrawalDocument},
    "retention": {"": RetentionPreviewDocument},
    "delete-records": {"": TruncationDocument},
    "fetch": {"": FetchDocument, "--offset": RecordsDocument},
    "restore": {"": RestoreDocument, "--dry-run": RestorePlanDocument},
    "doctor": {"": DoctorDocument},
    "ready": {"": ReadinessDocument},
    "configs": {
        "": ConfigsDocument,
        "--alter": AlterationDocument,
        "--target brokers": BrokerConfigsDocument,
        "--alter --target brokers": BrokerAlterationDocument,
        "--target both": TogetherDocument,
    },
    "status": {"": StatusDocument},
    "backfill": {"": BackfillDocument},
    "attention": {"": AttentionDocument},
    "quality": {"": QualityDocument},
    "segments": {"": TimelineDocument},
    "events": {"": EventsDocument},
    "throughput": {"": ThroughputDocument},
    "pause": {"": PauseDocument},
    "resume": {"": PauseDocument},
    "init": {"": SurveyDocument},
    "migrate": {"": SetUpDocument},
    "pools": {"": PoolsDocument},
    "handover": {"": HandoverDocument, "--dry-run": HandoverChecksDocument, "--rehearse": RehearsalDocument},
    "publish": {"": PublicationDocument},
    "ingest": {"": IngestDocument},
    "audit": {"": AuditDocument, "--accept": AcceptedDocument, "--withdraw": WithdrawnRemovalsDocument},
    "rebuild": {"": RebuildDocument},
    "take-over-store": {"": TakeOverDocument},
    "relocate-store": {"": RelocationDocument},
    "adopt": {"": AdoptionDocument},
    "drill": {"": DrillDocument},
}
"""By command, and then by the options with which a command has another document."""

_TYPES: Final = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    NoneType: "null",
    Any: "any value",
}


def json_page(generated: str) -> str:
    """Return the page; `generated` is its line that names the command by which it is generated."""
    lines = [
        "# JSON documents",
        "",
        generated,
        "",
        "With `--json` (or `-o json`) a command writes one document to standard output, and nothing else; progress,",
        "questions and errors go to standard error. If a command cannot begin, it writes no document, and its exit",
        "code and the message on standard error say why. The exit code is the same as without `--json`.",
        "",
        "Members of a release stay; new ones may be added. Text for people, such as the members `message`, `detail`",
        "and `reason_message`, may change; codes, such as the members `reason` and `cause`, do not. Names end in their",
        "units: `_ms` of a time are milliseconds since 1970, `bytes` are bytes. Offsets are inclusive, unless a",
        "description says otherwise. In a path, `[]` is each item of a list and `*` each member of an object.",
        "",
        "`-o csv` writes the tables of a command instead: each with a line of heads and its title in the first column,",
        "separated by an empty line, sizes as bytes and durations as seconds. The summary goes to standard error.",
    ]
    for command, documents in DOCUMENTS.items():
        for options, document in documents.items():
            lines += ["", f"## {command} {options}".rstrip(), "", _sentence(document), ""]
            lines += ["| member | type | what it is |", "|---|---|---|", *_rows(document)]
    return "\n".join([*lines, ""])


def _rows(document: type, path: str = "") -> Iterator[str]:
    required: frozenset[str] = vars(document)["__required_keys__"]
    for name, hint in get_type_hints(document).items():
        found = _nested(hint)
        absent = [] if name in required else ["May be absent."]
        words = " ".join([*([] if found is None else [_sentence(found[1])]), *absent])
        yield f"| `{path}{name}` | {_words(hint)} | {words} |"
        if found is not None:
            yield from _rows(found[1], f"{path}{name}{found[0]}.")


def _sentence(document: type) -> str:
    return " ".join((document.__doc__ or "").split())


def _nested(hint: Any) -> tuple[str, type] | None:
    """Return the type of the objects in a type, and what a path has after the member's name to lead to one of them.

    That is `[]` if they are items of a list, `.*` if they are members of an object, and empty for a single one.
    """
    if is_typeddict(hint):
        return "", hint
    suffix = {list: "[]", dict: ".*"}.get(get_origin(hint), "")
    found = next((inner for inner in map(_nested, get_args(hint)) if inner is not None), None)
    return None if found is None else (suffix + found[0], found[1])


def _words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_words, arguments))
    if origin is list:
        return f"list of: {_words(arguments[0])}"
    if origin is dict:
        return f"object, each member: {_words(arguments[1])}"
    return "object" if is_typeddict(hint) else _TYPES[hint]
