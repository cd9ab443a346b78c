"""A copy in each form: what is proved on the way, what brokers are told, and what is refused before it begins."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.formats.aiven_manifest import CustomMetadataField, encode_custom_metadata
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.copy_world import World, copy_world
from tests.doubles.key_pairs import key_files
from tests.doubles.storage_decorators import Lies, LyingStorage

SIZE, PREFIX, KEY = CustomMetadataField
TRANSFORMED = AivenForm(100, compresses=True, encrypts=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with copy_world(tmp_path) as world:
        yield world


def in_form(world: World, tmp_path: Path, form: AivenForm) -> None:
    keys = KeyRing([key_files(tmp_path, "one")], "one")
    world.storage = open_storage((tmp_path / "remote").as_uri(), form=form, keys=keys)


def test_a_transformed_log_is_copied_and_proved(world: World, tmp_path: Path) -> None:
    orders = world.source.add("orders")
    in_form(world, tmp_path, TRANSFORMED)
    world.plan()
    assert world.batch().failed == ()
    assert world.offsets(orders) == [(0, 9), (10, 19), (20, 29)]
    assert world.objects() == 9


def test_a_store_that_has_something_else_is_caught(world: World, tmp_path: Path) -> None:
    world.source.add("orders")
    in_form(world, tmp_path, TRANSFORMED)
    world.storage = LyingStorage(world.storage, Lies(crc32c_xor=1))
    world.plan()
    assert {one.item.error for one in world.batch().failed} == {"RemoteChecksumError"}


def test_brokers_are_told_what_is_set_with_finished(world: World, tmp_path: Path) -> None:
    orders = world.source.add("orders")
    form = replace(TRANSFORMED, custom_metadata=frozenset({SIZE, PREFIX}), key_prefix="t-")
    in_form(world, tmp_path, form)
    world.plan()
    world.batch()
    for row in world.metadata.list_segments(orders.topic_id_partition):
        stored_bytes = sum(one.size_bytes for one in world.storage.stat_log_segment(row.metadata))
        assert row.metadata.custom_metadata == encode_custom_metadata({SIZE: stored_bytes, PREFIX: "t-"})
        assert stored_bytes > 0


def test_without_chosen_fields_nothing_is_told(world: World, tmp_path: Path) -> None:
    orders = world.source.add("orders")
    in_form(world, tmp_path, AivenForm())
    world.plan()
    world.batch()
    assert {row.metadata.custom_metadata for row in world.metadata.list_segments(orders.topic_id_partition)} == {None}


def test_what_brokers_would_not_take_is_refused_before_anything_is_begun(world: World, tmp_path: Path) -> None:
    """They would delete the copy and cancel their own copying of the partition."""
    orders = world.source.add("orders")
    in_form(world, tmp_path, AivenForm(custom_metadata=frozenset(CustomMetadataField), custom_metadata_max_bytes=80))
    world.plan()
    (failed,) = world.batch().failed
    assert failed.item.error == "CustomMetadataTooLargeError"
    assert "brokers take 80" in str(failed.item.message)
    assert world.metadata.list_segments(orders.topic_id_partition) == []
    assert world.objects() == 0
    assert (0, SegmentOutcome.FAILED) in world.outcomes()
