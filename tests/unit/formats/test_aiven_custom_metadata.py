"""Custom metadata: the plugin's vectors."""

import pytest

from include.tiering.formats.aiven_manifest import CustomMetadataField, encode_custom_metadata

SIZE, PREFIX, KEY = CustomMetadataField


@pytest.mark.parametrize(
    ("values", "encoded"),
    [
        ({SIZE: 100, KEY: "foo"}, "020002c801020404666f6f"),
        ({KEY: "foo", SIZE: 100}, "020002c801020404666f6f"),
        ({SIZE: 76}, "0100029801"),
        ({SIZE: 2**30}, "0100058080808008"),
        ({PREFIX: "p/"}, "01010303702f"),
        ({PREFIX: ""}, "01010101"),
        ({}, "00"),
    ],
)
def test_it_equals_the_plugins(values: dict[CustomMetadataField, int | str], encoded: str) -> None:
    assert encode_custom_metadata(values).hex() == encoded


def test_a_long_key_has_a_length_of_two_bytes() -> None:
    encoded = encode_custom_metadata({KEY: "k" * 200})
    assert encoded[:6].hex() == "0102ca01c901"
    assert encoded[6:] == b"k" * 200
