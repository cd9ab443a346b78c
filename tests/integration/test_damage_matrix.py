"""Damage done behind the platform's back, in a file store and in an S3 server: each kind is caught by what its entry
in the catalogue says, and 500 whole segments raise no finding."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import pytest

from include.tiering.model.segments import Depth, RemoteLogSegmentState, Verdict
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileListing, FileObjectStore
from include.tiering.remote_storage.s3.listing import S3Listing
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.segments.contract import SegmentRow
from tests.doubles.damages.catalogue import CATALOGUE, NOT_CAUGHT, OF_LOGS
from tests.doubles.damages.damage import ANY, DEEP, SHALLOW, Damage
from tests.doubles.damages.found import Store, broken, done, found_beside, measures_of, subjects_of
from tests.doubles.damages.picture import LOG, whole_picture
from tests.doubles.many_segments import many_segments
from tests.doubles.s3_server import (
    CREDENTIALS,
    ClientBackdoor,
    raw_client,
    versitygw_or_skip,
)
from tests.doubles.storage_backdoor import Backdoor, DirectoryBackdoor

BUCKET = "archive"


class CheckedBackdoor(ClientBackdoor):
    """What is put has the checksum that belongs to it."""

    def raw_write(self, key: str, content: bytes) -> None:
        crc32c = b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=content, ChecksumCRC32C=crc32c)


@dataclass(frozen=True)
class Kept:
    """`disk` leads around a server's checksums, too. `empty`: a place of the same kind with nothing in it.
    `is_cheap`: looking costs next to nothing."""

    store: Store
    disk: Backdoor
    empty: Store
    is_cheap: bool = False


@pytest.fixture(scope="module")
def in_files(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    def store_in(directory: Path) -> Store:
        return Store(FileObjectStore(directory), FileListing(directory), DirectoryBackdoor(directory))

    store = store_in(tmp_path_factory.mktemp("store"))
    return Kept(store, store.backdoor, store_in(tmp_path_factory.mktemp("empty")), is_cheap=True)


@pytest.fixture(scope="module")
def in_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with pytest.MonkeyPatch.context() as patch, versitygw_or_skip(tmp_path_factory.mktemp("s3")) as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server.make_bucket(BUCKET)

        def store_at(prefix: str) -> Store:
            return Store(
                S3ObjectStore(BUCKET, prefix, endpoint_url=server.endpoint_url),
                S3Listing(BUCKET, prefix, endpoint_url=server.endpoint_url),
                CheckedBackdoor(raw_client(server.endpoint_url), BUCKET, prefix),
            )

        yield Kept(store_at("tiered/"), server.backdoor(BUCKET, "tiered/"), store_at("empty/"))


@pytest.fixture(scope="module", params=["in_files", "in_s3"])
def kept(request: pytest.FixtureRequest) -> Kept:
    """With the whole picture in it."""
    kept: Kept = request.getfixturevalue(request.param)
    kept.store.fill()
    return kept


def contradictions(damage: Damage, kept: Kept) -> list[str]:
    """Between what the catalogue says and what is found. Where requests take their time, nobody looks for more."""
    with done(damage, kept.store) as scene:
        shallow = broken(scene.measure(SHALLOW))
        deep = broken(scene.measure(DEEP)) if kept.is_cheap or damage.depth is not SHALLOW else {"nobody looked"}
        beside = scene.of_neighbours() if kept.is_cheap or damage.is_told_beside else set()
    found = beside | {SHALLOW: shallow, DEEP: deep, ANY: set()}[damage.depth]
    wrong = [f"{rule} is not found" for rule in damage.rules if rule not in found]
    if damage.depth is not SHALLOW and shallow:
        wrong.append(f"a shallow measure finds {sorted(shallow)}")
    if damage.depth is ANY and deep:
        wrong.append(f"a deep measure finds {sorted(deep)}")
    if damage.depth is SHALLOW and not deep:
        wrong.append("a deep measure finds nothing")
    return wrong


@pytest.mark.parametrize("group", CATALOGUE)
def test_each_kind_of_damage_is_caught_as_the_catalogue_says(kept: Kept, group: str) -> None:
    wrong = {damage.name: contradictions(damage, kept) for damage in CATALOGUE[group]}
    assert {name: why for name, why in wrong.items() if why} == {}


def test_a_damaged_log_has_not_the_checksum_of_the_source(in_files: Kept) -> None:
    """Of kinds that the catalogue shows without it."""
    in_files.store.fill()
    unseen = []
    for damage in (one for group in OF_LOGS for one in CATALOGUE[group] if one.recorded):
        with done(damage.against_the_source, in_files.store) as scene:
            if not broken(scene.measure(SHALLOW)) & {"Q101", "Q102"}:
                unseen.append(damage.name)
    assert unseen == []


@pytest.mark.parametrize("group", NOT_CAUGHT)
def test_what_is_said_to_be_unseen_is_unseen(kept: Kept, group: str) -> None:
    found = {}
    for damage in NOT_CAUGHT[group]:
        with done(damage, kept.store) as scene:
            found[damage.name] = broken(scene.measure(SHALLOW)) | broken(scene.measure(DEEP)) | scene.of_neighbours()
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_without_damage_nothing_is_found(kept: Kept) -> None:
    whole = whole_picture()
    subjects = list(subjects_of(whole))
    assert [broken(measures_of(subjects, kept.store, depth)) for depth in Depth] == [set(), set()]
    assert found_beside(whole, kept.store) == set()


def test_bytes_that_rot_below_the_store(kept: Kept) -> None:
    """S3 answers with the checksum that it computed when the object arrived: only who reads the bytes can tell."""
    segment = whole_picture().segment()
    key, log = segment.key(LOG), segment.read(LOG)
    subject = [subject for subject in subjects_of(whole_picture()) if subject[0] is segment.row]
    kept.disk.raw_write(key, log[:20_000] + bytes([log[20_000] ^ 1]) + log[20_001:])
    try:
        shallow, deep = (broken(measures_of(subject, kept.store, depth)) for depth in (SHALLOW, DEEP))
    finally:
        kept.store.backdoor.raw_write(key, log)
    if kept.disk is kept.store.backdoor:
        assert (shallow, deep) == ({"Q102"}, {"Q102", "Q262"})
    else:
        assert (shallow, deep) == (set(), {"Q105", "Q262"})


@pytest.mark.parametrize(("store", "least"), [("in_files", 500), ("in_s3", 40)])
def test_whole_segments_raise_no_finding(store: str, least: int, request: pytest.FixtureRequest) -> None:
    kept: Kept = request.getfixturevalue(store)
    segments = 0
    for partition in many_segments(least):
        previous = None
        for metadata, data in partition:
            finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
            kept.empty.storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
            subject = SegmentRow(finished, Verdict.NONE, data.log_crc32c), previous
            for depth in Depth:
                (measure,) = measures_of([subject], kept.empty, depth)
                assert broken([measure]) == set(), measure.remarks
            previous = finished
            segments += 1
    assert segments >= least
