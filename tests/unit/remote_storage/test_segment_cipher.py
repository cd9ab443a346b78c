"""Sealing and wrapping: the plugin's vector, an independent implementation, and keys that are not the right ones."""

import os

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats.aiven_manifest import Encryption
from include.tiering.remote_storage.layouts.key_ring import SegmentCipher, unwrap, wrap
from tests.doubles.aiven_reader import opened, unwrapped
from tests.doubles.aiven_writer import wrapped_key
from tests.doubles.key_pairs import key_pair, private_pem, public_pem

KEY, AAD, IV = bytes(range(0x20)), bytes(range(0x20, 0x40)), bytes(range(0x64, 0x70))
SEALED = bytes.fromhex(
    "6465666768696a6b6c6d6e6f207eb20a16c922f75b103a8cfa161e9230a3616f774bbf015a2da79ae299ca3ea854678e"
)


def test_a_sealed_chunk_equals_the_plugins() -> None:
    cipher = SegmentCipher(KEY, AAD)
    assert cipher.seal(b"hello tiered storage", IV) == SEALED
    assert cipher.open(SEALED) == b"hello tiered storage"
    assert opened(SEALED, KEY, AAD) == b"hello tiered storage"


@pytest.mark.parametrize("position", [0, 11, 12, 20, 31, 32, 47])
def test_a_changed_byte_is_noticed_wherever_it_is(position: int) -> None:
    changed = bytearray(SEALED)
    changed[position] ^= 1
    with pytest.raises(FormatError, match="tag is wrong"):
        SegmentCipher(KEY, AAD).open(bytes(changed))


@pytest.mark.parametrize("size", [0, 1, 27, 28, 47])
def test_a_cut_chunk_is_noticed(size: int) -> None:
    with pytest.raises(FormatError, match=r"too few|tag is wrong"):
        SegmentCipher(KEY, AAD).open(SEALED[:size])


def test_another_key_or_other_additional_data_open_nothing() -> None:
    for cipher in (SegmentCipher(bytes(32), AAD), SegmentCipher(KEY, bytes(32))):
        with pytest.raises(FormatError, match="tag is wrong"):
            cipher.open(SEALED)


def test_a_key_is_wrapped_as_an_independent_reader_unwraps_it() -> None:
    assert unwrapped(wrap(KEY, key_pair("one").public_key(), os.urandom), private_pem("one")) == KEY
    assert unwrap(wrapped_key(KEY, public_pem("one")), key_pair("one")) == KEY


def test_wrapping_twice_gives_two_texts_of_one_key() -> None:
    public = key_pair("one").public_key()
    one, other = wrap(KEY, public, os.urandom), wrap(KEY, public, os.urandom)
    assert one != other
    assert unwrap(one, key_pair("one")) == unwrap(other, key_pair("one")) == KEY


def test_a_key_for_another_pair_stays_wrapped_and_nothing_of_it_is_told() -> None:
    wrapped = wrap(KEY, key_pair("one").public_key(), os.urandom)
    with pytest.raises(FormatError, match="wrapped for another key") as raised:
        unwrap(wrapped, key_pair("two"))
    assert raised.value.__cause__ is None
    with pytest.raises(FormatError, match="wrapped for another key"):
        unwrap(wrapped[:-1], key_pair("one"))


def test_a_wrapped_key_of_another_length_is_refused() -> None:
    with pytest.raises(FormatError, match="16 bytes instead of 32"):
        unwrap(wrap(bytes(16), key_pair("one").public_key(), os.urandom), key_pair("one"))


def test_the_member_of_a_manifest_reads_back_and_shows_no_key() -> None:
    encryption = Encryption("key-1", b"\x01\x02wrapped", AAD)
    assert Encryption.parse(encryption.data_key_text(), encryption.aad_text()) == encryption
    assert encryption.data_key_text() == "key-1:AQJ3cmFwcGVk"
    assert repr(encryption) == "Encryption(key_pair_id='key-1')"
    assert repr(SegmentCipher(KEY, AAD)) == "SegmentCipher()"


@pytest.mark.parametrize(
    ("data_key", "aad"),
    [
        ("", ""),
        ("AAAA", "AAAA"),
        (":AAAA", "AAAA"),
        (" :AAAA", "AAAA"),
        ("k:AAAA:AAAA", "AAAA"),
        ("k\n:AAAA", "AAAA"),
        ("k:secret!", "AAAA"),
        ("k:AAAA", "secret!"),
        ("k:" + "A" * 10_000, "AAAA"),
    ],
)
def test_what_is_no_such_member_is_refused_without_repeating_it(data_key: str, aad: str) -> None:
    with pytest.raises(FormatError, match="encryption") as raised:
        Encryption.parse(data_key, aad)
    assert "secret" not in str(raised.value)
