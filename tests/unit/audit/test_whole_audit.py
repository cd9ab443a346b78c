"""Every kind of disagreement is found, each by itself and among others, and what is in order is not."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from include.tiering.audit.compare import AuditResult, classify, gather
from include.tiering.audit.finding import AuditContext, AuditMoment, FindingKind, PassedOver
from include.tiering.errors import (
    ForeignStoreError,
    FormatError,
    RemoteAccessDeniedError,
    RemoteChecksumError,
    RemoteMetadataError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
    TieringError,
    UnknownVersionError,
)
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import ListedObject
from tests.doubles.audit_plants import PLANTS, QUIET, UPLOAD_PLANTS, VERSION_PLANTS
from tests.doubles.audit_worlds import (
    DELETE_STARTED,
    HOUR_MS,
    KINDS,
    LISTED_AT_MS,
    MARKER,
    OLD_MS,
    STARTED,
    TOMBSTONE,
    World,
)

ALL_PLANTS = {**PLANTS, **VERSION_PLANTS, **UPLOAD_PLANTS}


def audit(world: World, **moment: int) -> AuditResult:
    context = AuditContext(
        AuditMoment(LISTED_AT_MS, **moment),
        AivenLayout(),
        world.topics,
        frozenset(world.leased_partitions),
        world.read_manifest,
    )
    return classify(gather([world.objects], [world.uploads], context), world.segments, context)


def identities(result: AuditResult) -> list[tuple[str, str, str, str]]:
    return sorted(finding.identity for finding in result.findings)


@pytest.mark.parametrize("version", ["", "v1"])
@pytest.mark.parametrize("plant", sorted(ALL_PLANTS))
def test_each_disagreement_is_found_and_nothing_else(plant: str, version: str) -> None:
    world = World.empty(current_version=version)
    for _ in range(3):
        world.healthy()
        ALL_PLANTS[plant](world)
    assert identities(audit(world)) == sorted(world.expected)


@pytest.mark.parametrize("plant", sorted(QUIET))
def test_what_is_in_order_is_no_finding(plant: str) -> None:
    world = World.empty()
    QUIET[plant](world)
    assert identities(audit(world)) == []


def test_the_worlds_together_have_every_kind() -> None:
    world = World.empty(current_version="v1")
    for plant in ALL_PLANTS.values():
        plant(world)
    assert {kind for kind, *_ in world.expected} == {kind.value for kind in FindingKind}


def test_a_mixture_of_everything_in_any_order_gives_the_same_findings() -> None:
    chosen = random.Random(7)
    world = World.empty(current_version="v1")
    for _ in range(300):
        chosen.choice([*ALL_PLANTS.values(), *QUIET.values(), lambda into: into.healthy()])(world)
    expected = sorted(world.expected)
    for _ in range(3):
        assert identities(audit(world)) == expected
        for gathered in (world.objects, world.uploads, world.segments):
            chosen.shuffle(gathered)


def test_totals_count_current_objects_and_all_rows() -> None:
    world = World.empty(current_version="v1")
    world.healthy()
    VERSION_PLANTS["delete marker"](world)
    result = audit(world)
    assert (result.objects, result.rows) == (4, 2)
    assert result.object_bytes == sum(listed.size_bytes for listed in world.objects if listed.is_current)


def test_objects_that_are_passed_over_are_counted() -> None:
    world = World.empty()
    for plant in QUIET.values():
        plant(world)
    assert audit(world).passed_over == Counter({PassedOver.YOUNG: 3, PassedOver.OF_BROKERS: 2, PassedOver.CHANGING: 4})


def test_a_finding_says_what_a_row_of_it_needs() -> None:
    world = World.empty(current_version="v1")
    attempt = world.attempt()
    world.store_all(attempt)
    (finding,) = audit(world).findings
    assert str(finding.segment_id) == attempt.segment_id
    assert str(finding.topic_id) == attempt.topic_id
    assert (finding.topic, finding.partition) == (attempt.topic, attempt.partition)
    assert (finding.start_offset, finding.end_offset) == (attempt.start_offset, attempt.end_offset)
    assert finding.size_bytes == sum(attempt.size_bytes(kind) for kind in KINDS)
    assert (finding.last_modified_ms, finding.version_id) == (OLD_MS, "v1")
    assert str(attempt.end_offset) in finding.message


def test_a_dangling_reference_names_the_offsets_that_are_lost() -> None:
    world = World.empty()
    PLANTS["dangling: log"](world)
    (finding,) = audit(world).findings
    (cluster_metadata,) = world.segments
    assert f"{cluster_metadata.start_offset} to {cluster_metadata.end_offset}" in finding.message
    assert (finding.start_offset, finding.end_offset) == (cluster_metadata.start_offset, cluster_metadata.end_offset)


def test_a_listing_without_the_marker_is_refused() -> None:
    world = World.empty()
    world.objects = [listed for listed in world.objects if listed.key != MARKER]
    PLANTS["dangling: all"](world)
    with pytest.raises(ForeignStoreError, match=MARKER):
        audit(world)


def test_a_marker_that_was_deleted_is_no_marker() -> None:
    world = World.empty()
    world.objects = [ListedObject(MARKER, 0, OLD_MS, "m", is_delete_marker=True)]
    with pytest.raises(ForeignStoreError):
        audit(world)


def test_an_inventory_says_nothing_about_what_changed_shortly_before_it() -> None:
    world = World.empty()
    PLANTS["dangling: all"](world)
    PLANTS["orphan: of a deleted segment"](world)
    since_ms = LISTED_AT_MS - OLD_MS
    assert identities(audit(world, settled_ms=since_ms + 1)) == []
    assert identities(audit(world, settled_ms=since_ms - 1)) == sorted(world.expected)


def test_a_delete_that_waits_on_purpose_is_not_abandoned() -> None:
    world = World.empty()
    world.know(world.attempt(), DELETE_STARTED)
    assert identities(audit(world, delete_hold_ms=LISTED_AT_MS - OLD_MS + 1)) == []
    assert len(identities(audit(world, delete_hold_ms=HOUR_MS))) == 1


def test_an_object_of_a_known_segment_is_never_an_orphan_in_any_state() -> None:
    for state in range(3):
        world = World.empty()
        attempt = world.attempt()
        world.know(attempt, state)
        world.store_all(attempt)
        world.store(attempt.key("snapshot"), 1)
        assert not {"orphan", "adoptable"} & {finding.kind.value for finding in audit(world).findings}


def test_the_same_id_deleted_in_one_partition_and_alive_in_another_is_known() -> None:
    world = World.empty()
    attempt = world.healthy()
    other = replace(attempt, partition=attempt.partition + 1)
    world.know(other, TOMBSTONE)
    world.store_all(other)
    assert {finding.kind.value for finding in audit(world).findings} == {"wrong-layout"}


def test_one_id_under_two_names_of_a_topic_is_two_sets() -> None:
    world = World.empty()
    attempt = world.attempt(topic="unknown")
    renamed = replace(attempt, topic="renamed")
    world.store_all(attempt, "log", "indexes")
    world.store_all(renamed, "log", "rsm-manifest")
    assert len(identities(audit(world))) == 4


def test_of_two_adoptable_sets_of_one_range_the_newer_one_is_offered() -> None:
    world = World.empty()
    older = world.attempt()
    newer = older.again()
    world.store_all(newer, at_ms=OLD_MS + 1)
    world.store_all(older)
    assert {f.kind.value: f.key for f in audit(world).findings} == {
        "adoptable": newer.key("rsm-manifest"),
        "duplicate": older.key("rsm-manifest"),
    }


def test_an_epoch_that_a_moved_log_start_cut_is_the_same_one() -> None:
    world = World.empty()
    first = world.healthy()
    world.segments[-1] = world.segments[-1]._replace(leader_epochs=f"0:{first.start_offset + 7}")
    second = first.again()
    world.store_all(second)
    assert [finding.kind.value for finding in audit(world).findings] == ["duplicate"]


def test_of_two_adoptable_sets_of_one_range_under_two_epochs_both_are_offered() -> None:
    world = World.empty()
    older = world.attempt()
    world.store_all(older)
    world.store_all(older.of_another_history())
    assert [finding.kind.value for finding in audit(world).findings] == ["adoptable", "adoptable"]


def test_a_set_whose_manifest_says_other_lengths_is_not_adoptable() -> None:
    for kind in ("log", "indexes"):
        world = World.empty()
        attempt = world.attempt()
        world.store_all(attempt, *(each for each in KINDS if each != kind))
        world.store(attempt.key(kind), 3)
        assert {finding.kind.value for finding in audit(world).findings} == {"orphan"}


def test_a_manifest_without_metadata_or_of_other_offsets_is_not_adoptable() -> None:
    for manifest in ({"startOffset": 1}, {"endOffset": -1}):
        world = World.empty()
        attempt = world.attempt()
        world.store_all(attempt)
        world.replace_manifest(attempt, attempt.manifest(**manifest))
        assert {finding.kind.value for finding in audit(world).findings} == {"orphan"}


def test_a_manifest_that_is_not_what_is_listed_or_does_not_name_its_segment_leaves_a_complete_copy() -> None:
    for content in (b"<html>the proxy is not well</html>", b"{}", b""):
        world = World.empty()
        PLANTS["adoptable"](world)
        (key,) = world.manifests
        world.manifests[key] = content
        (found,) = audit(world).findings
        assert (found.kind.value, f"{len(content)} bytes came" in found.message) == ("adoptable", True)
    world = World.empty()
    attempt = world.attempt()
    world.store_all(attempt)
    document = json.loads(attempt.manifest())
    del document["remoteLogSegmentMetadata"]
    world.replace_manifest(attempt, json.dumps(document).encode())
    (found,) = audit(world).findings
    assert (found.kind.value, "does not name it" in found.message) == ("adoptable", True)


def test_a_manifest_that_cannot_be_read_now_leaves_its_segment_adoptable() -> None:
    world = World.empty()
    PLANTS["adoptable"](world)
    world.manifests.clear()
    assert identities(audit(world)) == sorted(world.expected)


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (RemoteResourceNotFoundError("gone"), set()),
        (FormatError("too long for a manifest"), {"orphan"}),
        (UnknownVersionError("its version is 2"), {"adoptable"}),
        # These say nothing of the stored bytes, so the copy may be whole, and must not be removed.
        (RemoteAccessDeniedError("the store answered InvalidObjectState (403)"), {"adoptable"}),
        (RemoteChecksumError("the bytes that arrived differ"), {"adoptable"}),
        (RemoteStorageError("the store answered KMS.DisabledException (400)"), {"adoptable"}),
    ],
)
def test_a_manifest_that_is_gone_or_unreadable(error: TieringError, kinds: set[str]) -> None:
    world = World.empty()
    PLANTS["adoptable"](world)
    found = _audit_with_reader(world, error).findings
    assert {finding.kind.value for finding in found} == kinds
    assert all(str(error) in finding.message for finding in found)


def test_a_wrong_length_that_an_unreadable_manifest_may_explain_says_so() -> None:
    world = World.empty()
    QUIET["compressed by a broker"](world)
    (found,) = _audit_with_reader(world, RemoteAccessDeniedError("denied")).findings
    assert (found.kind.value, "which may explain this, cannot be read: denied" in found.message) == (
        "size-mismatch",
        True,
    )


def test_a_store_that_does_not_answer_ends_the_audit() -> None:
    for plant in ("adoptable", "size: a short log"):
        world = World.empty()
        PLANTS[plant](world)
        with pytest.raises(RemoteStorageUnavailableError):
            _audit_with_reader(world, RemoteStorageUnavailableError("503"))


def test_an_encrypted_log_has_the_length_that_its_manifest_says() -> None:
    world = World.empty()
    QUIET["encrypted by a broker"](world)
    listed = world.objects[-1]
    world.objects[-1] = listed._replace(size_bytes=listed.size_bytes + 1)
    assert [finding.kind.value for finding in audit(world).findings] == ["size-mismatch"]


def test_a_manifest_of_another_length_excuses_nothing() -> None:
    world = World.empty()
    QUIET["compressed by a broker"](world)
    world.segments[-1] = world.segments[-1]._replace(size_bytes=9)
    assert [finding.kind.value for finding in audit(world).findings] == ["size-mismatch"]


def test_a_segment_of_no_topic_is_a_damaged_database() -> None:
    world = World.empty()
    world.know(world.attempt(topic="unknown"), STARTED)
    with pytest.raises(RemoteMetadataError, match="topic"):
        audit(world)


def _audit_with_reader(world: World, error: TieringError) -> AuditResult:
    def read(_: str) -> bytes | None:
        raise error

    context = AuditContext(AuditMoment(LISTED_AT_MS), AivenLayout(), world.topics, frozenset(), read)
    return classify(gather([world.objects], [world.uploads], context), world.segments, context)
