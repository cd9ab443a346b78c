"""A finding that is checked again while its segment is being deleted."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.audit.conclude_audit import AuditEnd, SeenByAudit
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.record import AuditSource, Memory, UnknownCopy
from include.tiering.errors import (
    FormatError,
    RemoteAccessDeniedError,
    RemoteResourceNotFoundError,
    TieringError,
    UnknownVersionError,
)
from include.tiering.model.segments import Uuid
from tests.doubles.partial import Partial

KEY = "orders-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log"
FOUND = AuditFinding(
    kind=FindingKind.DANGLING_REFERENCE,
    key=KEY,
    message="missing",
    size_bytes=1,
    segment_id=Uuid(bytes(15) + b"\x01"),
    topic_id=Uuid(bytes(16)),
    topic="orders",
    partition=0,
)


@dataclass
class Store(Partial):
    """The object and its FINISHED row; `deleted_after` names the read after which another process deletes both."""

    deleted_after: str | None = None
    is_stored: bool = False
    is_finished: bool = True
    recorded: list[Any] = field(default_factory=list)

    def attempt(self, key: str) -> dict[str, int]:
        answer = {key: 1} if self.is_stored else {}
        self._delete("store")
        return answer

    def segment(self, _segment_id: object) -> Any:
        answer = SimpleNamespace(metadata=SimpleNamespace(is_finished=self.is_finished))
        self._delete("row")
        return answer

    def _delete(self, read: str) -> None:
        if self.deleted_after == read:
            self.is_finished = self.is_stored = False

    def memory(self) -> Memory:
        return Memory(0, None)

    def active_guards(self) -> tuple[()]:
        return ()

    def findings(self, _states: object) -> tuple[()]:
        return ()

    def record(self, record: Any, confirmed: Any, *, covers: Any) -> Any:
        return SimpleNamespace(seen={})


def confirmed(store: Store, found: AuditFinding = FOUND) -> list[FindingKind]:
    seen = SeenByAudit(
        run_id="audit",
        source=AuditSource.LISTING,
        began_at_ms=1_000,
        objects=0,
        rows=1,
        findings=[found],
        passed_over={},
        listing_ended_ms=1,
        rows_began_ms=2,
        covers=list(FindingKind),
    )
    return [finding.kind for finding in AuditEnd(store, store, store, None, None).conclude(seen).findings]


@pytest.mark.parametrize("deleted_after", ["store", "row"])
def test_a_segment_that_is_deleted_meanwhile_is_no_dangling_reference(deleted_after: str) -> None:
    assert confirmed(Store(deleted_after, is_stored=True)) == []


@pytest.mark.parametrize(
    ("is_stored", "is_finished", "kinds"),
    [(False, True, [FindingKind.DANGLING_REFERENCE]), (False, False, []), (True, True, []), (True, False, [])],
)
def test_only_a_missing_object_of_a_finished_row_is_one(
    is_stored: bool, is_finished: bool, kinds: list[FindingKind]
) -> None:
    assert confirmed(Store(is_stored=is_stored, is_finished=is_finished)) == kinds


@pytest.mark.parametrize("unknown", ["segment_id", "topic_id", "partition", "topic"])
def test_a_finding_that_does_not_name_its_whole_segment_is_kept_without_a_row(unknown: str) -> None:
    """It cannot be looked up, so nothing says that its segment is being deleted."""
    store = Store(is_finished=False)
    missing: Any = {unknown: "" if unknown == "topic" else None}
    found = replace(FOUND, **missing)
    assert confirmed(store, found) == [FindingKind.DANGLING_REFERENCE]
    assert confirmed(store, FOUND) == []


@pytest.mark.parametrize(
    ("manifest", "began_ms"),
    [
        (UnknownVersionError("its version is 2"), 777),
        (RemoteAccessDeniedError("denied"), 777),
        (FormatError("not JSON"), None),
        (RemoteResourceNotFoundError("gone"), None),
    ],
)
def test_a_copy_whose_manifest_does_not_tell_when_it_began_counts_from_when_it_was_stored(
    manifest: TieringError, began_ms: int | None
) -> None:
    class Unread(Store):
        def manifest(self, _key: str) -> bytes:
            raise manifest

    store = Unread()
    key = KEY.replace(".log", ".rsm-manifest")
    found = replace(FOUND, kind=FindingKind.ADOPTABLE, key=key, last_modified_ms=777)
    assert [*AuditEnd(store, store, store, None, None)._unknown_copies([found])] == [UnknownCopy(key, began_ms)]
