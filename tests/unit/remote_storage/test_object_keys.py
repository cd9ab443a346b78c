"""Keys that can only name an object inside the prefix, and the name of a listing."""

from pathlib import Path

import pytest

from include.tiering.errors import ObjectKeyError
from include.tiering.remote_storage.file.store import FileListing
from include.tiering.remote_storage.object_store import MAX_KEY_LENGTH, checked_key


@pytest.mark.parametrize("key", ["a", "a/b", "A-Z_0.9/..a", "a" * MAX_KEY_LENGTH])
def test_a_key_is_accepted(key: str) -> None:
    assert checked_key(key) == key


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a b", "ä", "a\n"])
def test_a_key_that_may_name_another_object_is_refused(key: str) -> None:
    with pytest.raises(ObjectKeyError, match="is refused"):
        checked_key(key)


def test_a_key_has_1024_characters_at_most() -> None:
    assert MAX_KEY_LENGTH == 1024
    with pytest.raises(ObjectKeyError, match="object key of 1025 characters: at most 1024 are allowed"):
        checked_key("a" * 1025)


def test_a_listing_of_a_directory_is_called_by_its_url() -> None:
    assert FileListing(Path("/remote/store")).describe() == "file:///remote/store"
