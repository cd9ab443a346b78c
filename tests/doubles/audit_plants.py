"""Ways in which a store and its database disagree, and ways in which they only seem to; each with what is found."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from include.tiering.remote_storage.object_store import ListedObject, ListedUpload
from tests.doubles.aiven_files import encoded_sizes
from tests.doubles.audit_worlds import (
    DELETE_STARTED,
    FINISHED,
    KINDS,
    LATER_MS,
    OLD_MS,
    STARTED,
    TOMBSTONE,
    YOUNG_MS,
    World,
    text_id,
)

Plant = Callable[[World], None]


def orphan_log(world: World) -> None:
    attempt = world.attempt()
    world.store_all(attempt, "log")
    world.expect("orphan", attempt.key("log"), version=world.current_version)


def orphan_without_manifest(world: World) -> None:
    attempt = world.attempt(topic="a topic that nobody knows".replace(" ", "-"))
    world.store_all(attempt, "log", "indexes")
    world.expect("orphan", attempt.key("log"), attempt.key("indexes"), version=world.current_version)


def orphan_with_unusable_manifest(world: World) -> None:
    attempt = world.attempt()
    world.store_all(attempt)
    world.replace_manifest(attempt, b"{}")
    world.expect("orphan", *(attempt.key(kind) for kind in KINDS), version=world.current_version)


def orphan_with_manifest_of_another(world: World) -> None:
    attempt, other = world.attempt(), world.healthy()
    world.store_all(attempt)
    world.replace_manifest(attempt, other.manifest())
    world.expect("orphan", *(attempt.key(kind) for kind in KINDS), version=world.current_version)


def orphan_of_a_tombstone(world: World) -> None:
    attempt = world.attempt()
    world.know(attempt, TOMBSTONE)
    world.store_all(attempt)
    world.expect("orphan", *(attempt.key(kind) for kind in KINDS), version=world.current_version)


def adoptable(world: World) -> None:
    attempt = world.attempt()
    world.store_all(attempt)
    world.expect("adoptable", attempt.key("rsm-manifest"), version=world.current_version)


def abandoned_before_any_object(world: World) -> None:
    attempt = world.attempt()
    world.know(attempt, STARTED)
    world.expect("abandoned-copy", attempt.key("log"))


def abandoned_with_objects(world: World) -> None:
    attempt = world.attempt()
    world.know(attempt, STARTED)
    world.store_all(attempt, "log")
    world.expect("abandoned-copy", attempt.key("log"))


def abandoned_by_a_broker(world: World) -> None:
    attempt = world.attempt(topic="brokers'")
    world.know(attempt, STARTED)
    world.store_all(attempt)
    world.expect("abandoned-copy", attempt.key("log"))


def abandoned_delete(world: World) -> None:
    attempt = world.attempt()
    world.know(attempt, DELETE_STARTED)
    world.store_all(attempt)
    world.expect("abandoned-copy", attempt.key("log"))


def dangling(*missing: str) -> Plant:
    def plant(world: World) -> None:
        attempt = world.attempt()
        world.know(attempt)
        for kind in KINDS:
            if kind not in missing:
                world.store_all(attempt, kind)
        world.expect("dangling-reference", *(attempt.key(kind) for kind in missing))

    return plant


def other_length(kind: str, size_bytes: int) -> Plant:
    def plant(world: World) -> None:
        attempt = world.attempt()
        world.know(attempt)
        world.store_all(attempt, *(each for each in KINDS if each != kind))
        world.store(attempt.key(kind), size_bytes)
        world.expect("size-mismatch", attempt.key(kind), version=world.current_version)

    return plant


def duplicate_finished(world: World) -> None:
    first = world.healthy()
    second = first.again()
    world.know(second)
    world.store_all(second)
    world.expect("duplicate", first.key("log"))


def duplicate_unknown(world: World) -> None:
    first = world.healthy()
    second = first.again()
    world.store_all(second)
    world.expect("duplicate", second.key("rsm-manifest"), version=world.current_version)


def adoptable_of_another_history(world: World) -> None:
    second = world.healthy().of_another_history()
    world.store_all(second)
    world.expect("adoptable", second.key("rsm-manifest"), version=world.current_version)


def quiet_two_histories(world: World) -> None:
    second = world.healthy().of_another_history()
    world.know(second)
    world.store_all(second)


def misplaced_prefix(world: World) -> None:
    attempt = world.healthy()
    world.store(f"backup/{attempt.key('log')}", 10)
    world.expect("wrong-layout", f"backup/{attempt.key('log')}", version=world.current_version)


def misplaced_partition(world: World) -> None:
    attempt = world.healthy()
    key = attempt.key("indexes").replace(f"/{attempt.partition}/", f"/{attempt.partition + 7}/")
    world.store(key, 10)
    world.expect("wrong-layout", key, version=world.current_version)


def misplaced_kind(world: World) -> None:
    attempt = world.healthy()
    world.store(attempt.key("timeindex"), 10)
    world.expect("wrong-layout", attempt.key("timeindex"), version=world.current_version)


def foreign(world: World) -> None:
    number = world.attempts = world.attempts + 1
    for key in (f"notes-{number}.txt", f"odd &<{number}>/%41+ü\n'\"", f"{text_id(str(number))}.log"):
        world.store(key, 10)
        world.expect("foreign-object", key, version=world.current_version)


def foreign_that_looks_like_a_segment(world: World) -> None:
    attempt = world.attempt()
    world.store(f"elsewhere/{attempt.key('log')}", 10)
    world.expect("foreign-object", f"elsewhere/{attempt.key('log')}", version=world.current_version)


def open_upload(world: World) -> None:
    attempt = world.attempt()
    for key in (attempt.key("log"), f"by-hand-{world.attempts}.bin"):
        world.uploads.append(ListedUpload(key, f"upload of {key}", OLD_MS))
        world.expect("open-multipart-upload", key, upload=f"upload of {key}")


def old_versions(world: World) -> None:
    attempt = world.healthy()
    for version in ("v0", "null"):
        world.objects.append(ListedObject(attempt.key("log"), 7, OLD_MS, version, is_latest=False))
        world.expect("old-version", attempt.key("log"), version=version)


def delete_marker(world: World) -> None:
    attempt = world.attempt()
    world.know(attempt, TOMBSTONE)
    world.objects += [
        ListedObject(attempt.key("log"), 0, OLD_MS, "m1", is_delete_marker=True),
        ListedObject(attempt.key("log"), 5, OLD_MS, "v0", is_latest=False),
        ListedObject(attempt.key("log"), 0, OLD_MS, "m0", is_latest=False, is_delete_marker=True),
    ]
    world.expect("delete-marker", attempt.key("log"), version="m1")
    world.expect("old-version", attempt.key("log"), version="v0")
    world.expect("old-version", attempt.key("log"), version="m0")


def quiet_young(world: World) -> None:
    attempt = world.attempt()
    world.store_all(attempt, "log", at_ms=OLD_MS)
    world.store_all(attempt, "indexes", at_ms=YOUNG_MS)
    world.uploads.append(ListedUpload(world.attempt().key("log"), f"young {world.attempts}", YOUNG_MS))


def quiet_of_brokers(world: World) -> None:
    attempt = world.attempt(topic="brokers'")
    world.store_all(attempt, "log")
    world.uploads.append(ListedUpload(world.attempt(topic="brokers'").key("log"), f"theirs {world.attempts}", OLD_MS))
    deleting = world.attempt(topic="brokers'")
    world.know(deleting, DELETE_STARTED)
    world.store_all(deleting)


def quiet_young_of_brokers(world: World) -> None:
    world.know(world.attempt(topic="brokers'"), STARTED, YOUNG_MS)


def quiet_copy_under_way(world: World) -> None:
    """In a partition that nothing else uses: its lease must not hide what another plant expects."""
    attempt = replace(world.attempt(), partition=1000 + world.attempts)
    world.know(attempt, STARTED)
    world.store_all(attempt, "log")
    world.uploads.append(ListedUpload(attempt.key("indexes"), f"running {world.attempts}", OLD_MS))
    world.leased_partitions.add((attempt.topic_id, attempt.partition))


def quiet_changing(world: World) -> None:
    world.know(world.attempt(), FINISHED, LATER_MS)
    deleted = world.attempt()
    world.know(deleted, TOMBSTONE, LATER_MS)
    world.store_all(deleted)
    begun = world.attempt()
    world.know(begun, DELETE_STARTED, YOUNG_MS)
    world.store_all(begun, "indexes")
    world.know(world.attempt(), STARTED, YOUNG_MS)


def quiet_encrypted(world: World) -> None:
    """As a broker with encryption writes it: each chunk of the log is 28 bytes longer."""
    attempt = world.attempt(log_bytes=8_000)
    world.know(attempt)
    world.store_all(attempt, "indexes", "rsm-manifest")
    document = json.loads(attempt.manifest())
    document["chunkIndex"]["transformedChunkSize"] += 28
    document["chunkIndex"]["finalTransformedChunkSize"] += 28
    metadata = document.pop("remoteLogSegmentMetadata")
    document |= {"encryption": {"dataKey": "k1:AAAA", "aad": "AAAA"}, "remoteLogSegmentMetadata": metadata}
    world.replace_manifest(attempt, json.dumps(document).encode())
    chunks = -(-attempt.log_bytes // 4096)
    world.store(attempt.key("log"), attempt.log_bytes + chunks * 28)


def quiet_compressed(world: World) -> None:
    """As a broker with compression writes it: the log is shorter than the broker's, as its manifest says."""
    attempt = world.attempt()
    world.know(attempt)
    world.store_all(attempt, "indexes", "rsm-manifest")
    document = json.loads(attempt.manifest())
    document["compression"] = True
    document["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": 4096,
        "originalFileSize": attempt.log_bytes,
        "transformedChunks": encoded_sizes(sizes := [321 + n for n in range(-(-attempt.log_bytes // 4096))]),
    }
    world.replace_manifest(attempt, json.dumps(document).encode())
    world.store(attempt.key("log"), sum(sizes))


def quiet_own(world: World) -> None:
    world.attempts += 1
    world.store(f"_tiering-probe-{world.attempts:016x}", 66)


PLANTS: Final[Mapping[str, Plant]] = {
    "orphan: a log alone": orphan_log,
    "orphan: no manifest": orphan_without_manifest,
    "orphan: a manifest that cannot be used": orphan_with_unusable_manifest,
    "orphan: the manifest of another segment": orphan_with_manifest_of_another,
    "orphan: of a deleted segment": orphan_of_a_tombstone,
    "adoptable": adoptable,
    "adoptable: of another history": adoptable_of_another_history,
    "abandoned copy: no object yet": abandoned_before_any_object,
    "abandoned copy: with its log": abandoned_with_objects,
    "abandoned copy: of a broker": abandoned_by_a_broker,
    "abandoned copy: a delete": abandoned_delete,
    "dangling: log": dangling("log"),
    "dangling: indexes": dangling("indexes"),
    "dangling: manifest": dangling("rsm-manifest"),
    "dangling: all": dangling(*KINDS),
    "size: a short log": other_length("log", 3),
    "size: a long log": other_length("log", 9_999_999),
    "size: empty indexes": other_length("indexes", 0),
    "size: an empty manifest": other_length("rsm-manifest", 0),
    "duplicate: two finished": duplicate_finished,
    "duplicate: unknown": duplicate_unknown,
    "wrong layout: another prefix": misplaced_prefix,
    "wrong layout: another partition": misplaced_partition,
    "wrong layout: another object": misplaced_kind,
    "foreign": foreign,
    "foreign: looks like a segment": foreign_that_looks_like_a_segment,
}
VERSION_PLANTS: Final[Mapping[str, Plant]] = {
    "old versions": old_versions,
    "delete marker": delete_marker,
}
UPLOAD_PLANTS: Final[Mapping[str, Plant]] = {"open upload": open_upload}
QUIET: Final[Mapping[str, Plant]] = {
    "young": quiet_young,
    "of brokers": quiet_of_brokers,
    "young, of brokers": quiet_young_of_brokers,
    "a copy under way": quiet_copy_under_way,
    "changed since the listing": quiet_changing,
    "two histories": quiet_two_histories,
    "encrypted by a broker": quiet_encrypted,
    "compressed by a broker": quiet_compressed,
    "our own": quiet_own,
}
