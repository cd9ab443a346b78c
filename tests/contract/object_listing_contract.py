"""What every `ObjectListing` of a live store must do. A subclass gives fixtures `listing`, `backdoor` and
`begin_upload`; `listing` is of what `backdoor` writes, and of nothing beside it."""

import copy
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from include.tiering.remote_storage.object_store import ListedObject, ObjectListing
from tests.doubles.storage_backdoor import Backdoor

ODD_KEYS = [
    "a/x",
    "a-b/x",
    "a.b",
    "a0",
    "b/1/x",
    "b/10/x",
    "b/1-c/x",
    "c&d<e>.log",
    "e%41+f g",
    "ö/ü — ж",
    "quote\"'and]]>",
    "_tiering-store.json",
]


def listed(listing: ObjectListing[Any], parts: int = 1) -> list[ListedObject]:
    return [one for part in listing.parts(parts) for page in listing.pages(part) for one in page]


def keys(listing: ObjectListing[Any], parts: int = 1) -> list[str]:
    return sorted(one.key for one in listed(listing, parts))


class ObjectListingContract:
    """`many`: objects that fill more than a page."""

    many = 1_100

    def test_an_empty_store_has_no_keys(self, listing: ObjectListing[Any], backdoor: Backdoor) -> None:
        backdoor.raw_write("gone/soon", b"")
        backdoor.raw_delete("gone/soon")
        assert keys(listing) == []
        assert list(itertools.chain.from_iterable(listing.open_uploads())) == []

    @pytest.mark.parametrize("parts", [1, 3, 40])
    def test_every_key_is_listed_once_whatever_the_parts(
        self, listing: ObjectListing[Any], backdoor: Backdoor, parts: int
    ) -> None:
        for number, key in enumerate(ODD_KEYS):
            backdoor.raw_write(key, b"x" * number)
        assert keys(listing, parts) == sorted(ODD_KEYS)
        assert {one.key: one.size_bytes for one in listed(listing, parts)} == {
            key: number for number, key in enumerate(ODD_KEYS)
        }

    def test_parts_together_hold_what_is_written_after_they_were_cut(
        self, listing: ObjectListing[Any], backdoor: Backdoor
    ) -> None:
        for key in ("b/1/x", "d/1/x", "f/1/x"):
            backdoor.raw_write(key, b"")
        parts = listing.parts(3)
        assert len(parts) == 3
        late = ["a", "c/1/y", "d/0/y", "d/1/y", "z/9"]
        for key in late:
            backdoor.raw_write(key, b"")
        found = [one.key for part in parts for page in listing.pages(part) for one in page]
        assert sorted(found) == sorted([*late, "b/1/x", "d/1/x", "f/1/x"])

    def test_many_pages_are_one_listing(self, listing: ObjectListing[Any], backdoor: Backdoor) -> None:
        expected = [f"topic/{number % 3}/{number:020d}" for number in range(self.many)]
        for key in expected:
            backdoor.raw_write(key, b"")
        assert keys(listing) == sorted(expected)
        assert keys(listing, 4) == sorted(expected)

    def test_a_part_is_a_value_that_another_process_can_read(
        self, listing: ObjectListing[Any], backdoor: Backdoor
    ) -> None:
        backdoor.raw_write("a/1", b"")
        parts = copy.deepcopy(listing.parts(2))
        assert [one.key for part in parts for page in listing.pages(part) for one in page] == ["a/1"]

    def test_an_object_has_the_time_of_its_last_change(self, listing: ObjectListing[Any], backdoor: Backdoor) -> None:
        backdoor.raw_write("a", b"")
        (found,) = listed(listing)
        assert abs(found.last_modified_ms - time.time_ns() // 1_000_000) < 60_000
        assert found.is_current

    def test_open_uploads_are_listed_apart(
        self, listing: ObjectListing[Any], backdoor: Backdoor, begin_upload: Callable[[str], str]
    ) -> None:
        backdoor.raw_write("topic/0/done", b"")
        tokens = {key: begin_upload(key) for key in ("topic/0/begun", "alone")}
        assert keys(listing) == ["topic/0/done"]
        uploads = list(itertools.chain.from_iterable(listing.open_uploads()))
        assert {upload.key: upload.upload_id for upload in uploads} == tokens
        assert all(abs(one.initiated_ms - time.time_ns() // 1_000_000) < 60_000 for one in uploads)
