"""Settings of the form of segments: what goes together, and what does not."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import SettingError
from include.tiering.formats.aiven_manifest import CustomMetadataField
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import layout_options
from include.tiering.settings import TieringSettings, load_settings, to_environment
from include.tiering.settings.remote_storage import KeyPairFiles


def loaded(**values: Any) -> TieringSettings:
    return load_settings(overrides={f"remote_storage.{name}": value for name, value in values.items()}, environ={})


def test_by_default_segments_are_plain() -> None:
    assert layout_options(loaded().remote_storage) == {"layout": "aiven", "form": AivenForm(), "keys": None}


def test_every_setting_reaches_the_form() -> None:
    settings = loaded(
        chunk_size=1000,
        compression_enabled=True,
        compression_heuristic_enabled=True,
        encryption_enabled=True,
        encryption_key_pair_id="k2",
        encryption_key_pairs="k1:/k/1.pub:/k/1.pem, k2:/k/2.pub",
        custom_metadata_fields_include="REMOTE_SIZE,OBJECT_KEY",
        custom_metadata_max_bytes=300,
        key_prefix="a/b-",
        kafka_release="4.1",
    ).remote_storage
    options = layout_options(settings)
    assert options["form"] == AivenForm(
        chunk_size_bytes=1000,
        compresses=True,
        unless_compressed=True,
        encrypts=True,
        custom_metadata=frozenset({CustomMetadataField.REMOTE_SIZE, CustomMetadataField.OBJECT_KEY}),
        custom_metadata_max_bytes=300,
        key_prefix="a/b-",
        with_txn_index_empty=True,
    )
    assert options["keys"] is not None
    assert settings.key_pairs == (
        KeyPairFiles("k1", Path("/k/1.pub"), Path("/k/1.pem")),
        KeyPairFiles("k2", Path("/k/2.pub"), None),
    )


def test_a_child_process_has_the_same_form() -> None:
    settings = loaded(encryption_key_pairs=["k1:/k/1.pub:/k/1.pem"], custom_metadata_fields_include=["OBJECT_KEY"])
    again = load_settings(environ=to_environment(settings))
    assert again.remote_storage == settings.remote_storage


@pytest.mark.parametrize(("release", "writes"), [(None, False), ("3.9.2", False), ("4.0", True), ("4.3.1", True)])
def test_the_member_of_newer_brokers_follows_their_release(release: str | None, writes: bool) -> None:
    assert loaded(kafka_release=release).remote_storage.brokers_write_txn_idx_empty is writes


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"layout": "local_tiered_storage", "url": "s3://bucket-1/p"}, "file:///directory"),
        ({"layout": "local_tiered_storage", "compression_enabled": True}, "of the aiven layout"),
        ({"layout": "local_tiered_storage", "key_prefix": "p/"}, "of the aiven layout"),
        ({"layout": "local_tiered_storage", "custom_metadata_fields_include": "OBJECT_KEY"}, "of the aiven layout"),
        ({"layout": "other"}, "local_tiered_storage"),
        ({"compression_heuristic_enabled": True}, "needs remote_storage.compression_enabled"),
        ({"encryption_enabled": True}, "must name one of"),
        ({"encryption_enabled": True, "encryption_key_pair_id": "k"}, "must name one of"),
        ({"encryption_key_pairs": "k:/a,k:/b"}, "k is listed twice"),
        ({"encryption_key_pairs": "k"}, "ID:PUBLIC.pem"),
        ({"encryption_key_pairs": "k:/a:/b:/c"}, "ID:PUBLIC.pem"),
        ({"encryption_key_pairs": ":/a"}, "ID:PUBLIC.pem"),
        ({"encryption_key_pairs": "k:relative.pem"}, "absolute path"),
        ({"encryption_key_pairs": "k:/a/../b"}, "absolute path"),
        ({"chunk_size": 0}, "at least 1"),
        ({"chunk_size": 2**30}, "at most 1073741823"),
        ({"custom_metadata_fields_include": "SIZE"}, "REMOTE_SIZE"),
        ({"key_prefix": "/a"}, "no leading slash"),
        ({"key_prefix": "a//b"}, "no leading slash"),
        ({"key_prefix": "../a"}, "no leading slash"),
        ({"key_prefix": "a b"}, "no leading slash"),
        ({"kafka_release": "latest"}, "such as 3.9"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=r"remote_storage\.") as raised:
        loaded(**values)
    assert words in str(raised.value)


def test_a_chunk_that_cannot_be_held_is_refused() -> None:
    settings = loaded(chunk_size=500_000_000, compression_enabled=True).remote_storage
    with pytest.raises(SettingError, match="held in memory"):
        layout_options(settings)
    layout_options(loaded(chunk_size=500_000_000).remote_storage)
