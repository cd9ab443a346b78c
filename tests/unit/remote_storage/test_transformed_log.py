"""Logs that are compressed and encrypted, and the keys of them."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import (
    FormatError,
    RemoteResourceNotFoundError,
    SegmentKeyError,
    SettingError,
    SourceChangedError,
    StoredChunkError,
)
from include.tiering.formats.aiven_chunks import FixedChunkIndex, VariableChunkIndex
from include.tiering.formats.aiven_manifest import Encryption
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES, ByteSource, LogSegmentData
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts import aiven_form
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm, StoredLog, stored_log
from include.tiering.remote_storage.layouts.key_ring import KeyRing, PemKeyPair, SegmentCipher, unwrap, wrap
from include.tiering.remote_storage.object_store import BytesSource, crc32c_of
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.units import MIB
from tests.doubles.aiven_files import decompressed, opened, unwrapped, wrapped_key
from tests.doubles.key_pairs import key_files, key_pair, private_pem, public_pem
from tests.doubles.record_batches import record_batch
from tests.doubles.stored_log import copied_partition, some_bytes, some_segment

# Logs that are compressed and encrypted.

# A log on its way through compression and encryption: what is sent, from which reads, and what stops it.

KEY, AAD = bytes(range(32)), bytes(range(32, 64))


@dataclass
class WatchedSource:
    """Remembers what was read, and may have other bytes from the second reading on."""

    content: bytes
    later: bytes | None = None
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def read_into(self, position: int, buffer: memoryview) -> int:
        if position == 0 and self.later is not None and self.reads:
            self.content, self.later = self.later, None
        part = self.content[position : position + len(buffer)]
        buffer[: len(part)] = part
        self.reads.append((position, len(part)))
        return len(part)


def data_of(log: ByteSource, content: bytes) -> LogSegmentData:
    return replace(some_segment()[1], log=log, log_crc32c=crc32c_of(content), log_running_crc32c=())


def stored(content: bytes, form: AivenForm, source: ByteSource | None = None) -> StoredLog:
    cipher = SegmentCipher(KEY, AAD) if form.encrypts else None
    return stored_log("orders-3", data_of(source or BytesSource(content), content), form, cipher, os.urandom)


def body_of(log: StoredLog, step: int) -> bytes:
    content = bytearray()
    while len(content) < log.body.size_bytes:
        buffer = bytearray(step)
        filled = log.body.read_into(len(content), memoryview(buffer))
        assert filled
        content += buffer[:filled]
    return bytes(content)


@given(
    st.binary(min_size=1, max_size=400),
    st.integers(1, 90),
    st.booleans(),
    st.booleans(),
    st.integers(1, 200),
    st.integers(0, 400),
)
def test_any_reads_give_the_same_bytes_and_they_hold_the_log(
    content: bytes, chunk_size: int, compresses: bool, encrypts: bool, step: int, kept_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aiven_form, "KEPT_BYTES", kept_bytes)
        log = stored(content, AivenForm(chunk_size, compresses=compresses, encrypts=encrypts))
        sent = body_of(log, step)
        assert sent == body_of(log, 10_000)
        position = len(sent) // 2
        buffer = bytearray(len(sent))
        assert log.body.read_into(position, memoryview(buffer)) == len(sent) - position
        assert bytes(buffer[: len(sent) - position]) == sent[position:]
    assert log.crc32c == crc32c_of(sent)
    assert log.chunk_index.stored_size_bytes == len(sent)
    plain = b""
    for at, size in log.chunk_index.stored_chunks(0):
        chunk = opened(sent[at : at + size], KEY, AAD) if encrypts else sent[at : at + size]
        plain += decompressed(chunk) if compresses else chunk
    assert plain == content


def test_checksums_of_its_parts_are_those_of_what_is_sent() -> None:
    content = some_bytes(20 * MIB + 5)
    log = stored(content, AivenForm(3 * MIB, encrypts=True))
    sent = body_of(log, 4 * MIB)
    steps = range(RUNNING_CRC32C_STEP_BYTES, len(sent) + 1, RUNNING_CRC32C_STEP_BYTES)
    assert log.running_crc32c == tuple(crc32c_of(sent[:end]) for end in steps)
    assert len(log.running_crc32c) == 2


def test_what_is_neither_compressed_nor_encrypted_is_the_file_itself() -> None:
    content = some_bytes(1000)
    source = WatchedSource(content)
    log = stored(content, AivenForm(300), source)
    assert log.body is source
    assert (source.reads, log.crc32c) == ([], crc32c_of(content))
    assert log.chunk_index == FixedChunkIndex(300, 1000, 300, 100)


def test_a_small_log_is_compressed_once_and_a_large_one_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    content = some_bytes(10_000)
    source = WatchedSource(content)
    body_of(stored(content, AivenForm(1000, compresses=True), source), 700)
    assert source.reads == [(at, 1000) for at in range(0, 10_000, 1000)]
    monkeypatch.setattr(aiven_form, "KEPT_BYTES", 2_500)
    source = WatchedSource(content)
    body_of(stored(content, AivenForm(1000, compresses=True), source), 700)
    again = source.reads[10:]
    assert again == [(at, 1000) for at in range(2000, 10_000, 1000)]


def test_a_log_that_is_not_what_was_checked_is_not_sent() -> None:
    content = some_bytes(1000)
    other = BytesSource(content[:500] + b"x" + content[501:])
    with pytest.raises(SourceChangedError, match="when it was checked"):
        stored(content, AivenForm(100, compresses=True), other)


def test_a_chunk_that_changed_since_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An initialisation vector would be used for two contents."""
    monkeypatch.setattr(aiven_form, "KEPT_BYTES", 0)
    content = some_bytes(1000)
    source = WatchedSource(content, later=b"x" + content[1:])
    log = stored(content, AivenForm(100, encrypts=True), source)
    with pytest.raises(SourceChangedError, match="chunk 0 is not what it was"):
        body_of(log, 100)


@pytest.mark.parametrize(
    ("head", "is_compressed"),
    [
        (lambda: record_batch(0, count=3, attributes=0), True),
        (lambda: record_batch(0, count=3, attributes=1), False),
        (lambda: record_batch(0, count=3, attributes=4), False),
        (lambda: b"no batch", False),
        (lambda: bytes(100), False),
    ],
    ids=["plain", "gzip", "zstd", "short", "none"],
)
def test_the_heuristic_looks_at_the_first_batch(head: Callable[[], bytes], is_compressed: bool) -> None:
    content = head() + bytes(50)
    form = AivenForm(100, compresses=True, unless_compressed=True)
    assert isinstance(stored(content, form).chunk_index, VariableChunkIndex) is is_compressed
    assert isinstance(stored(content, replace(form, unless_compressed=False)).chunk_index, VariableChunkIndex)


def test_chunks_that_must_be_held_are_bounded() -> None:
    AivenForm(512 * MIB)
    forms: list[dict[str, Any]] = [{"compresses": True}, {"encrypts": True}]
    for form in forms:
        with pytest.raises(SettingError, match=r"remote_storage\.chunk_size"):
            AivenForm(129 * MIB, **form)
    for size in (0, 2**30):
        with pytest.raises(SettingError):
            AivenForm(size)


def test_more_chunks_than_a_reader_takes_are_not_written() -> None:
    class Huge(WatchedSource):
        size_bytes = 2**31 - 1

    with pytest.raises(SettingError, match=r"remote_storage\.chunk_size 100"):
        stored(b"", AivenForm(100, encrypts=True), Huge(b""))
    assert stored(b"", AivenForm(100), Huge(b"")).body.size_bytes == 2**31 - 1


def test_every_chunk_has_an_initialisation_vector_of_its_own() -> None:
    content = bytes(10_000)
    log = stored(content, AivenForm(100, encrypts=True))
    sent = body_of(log, 999)
    assert len({sent[at : at + 12] for at in range(0, len(sent), 128)}) == 100
    assert extend_crc32c(0, sent) == log.crc32c


# Sealing and wrapping: the plugin's vector, an independent implementation, and keys that are not the right ones.

CIPHER_KEY, CIPHER_AAD, IV = bytes(range(0x20)), bytes(range(0x20, 0x40)), bytes(range(0x64, 0x70))
SEALED = bytes.fromhex(
    "6465666768696a6b6c6d6e6f207eb20a16c922f75b103a8cfa161e9230a3616f774bbf015a2da79ae299ca3ea854678e"
)


def test_a_sealed_chunk_equals_the_plugins() -> None:
    cipher = SegmentCipher(CIPHER_KEY, CIPHER_AAD)
    assert cipher.seal(b"hello tiered storage", IV) == SEALED
    assert cipher.open(SEALED) == b"hello tiered storage"
    assert opened(SEALED, CIPHER_KEY, CIPHER_AAD) == b"hello tiered storage"


@pytest.mark.parametrize("position", [0, 11, 12, 20, 31, 32, 47])
def test_a_changed_byte_is_noticed_wherever_it_is(position: int) -> None:
    changed = bytearray(SEALED)
    changed[position] ^= 1
    with pytest.raises(FormatError, match="tag is wrong"):
        SegmentCipher(CIPHER_KEY, CIPHER_AAD).open(bytes(changed))


@pytest.mark.parametrize("size", [0, 1, 27, 28, 47])
def test_a_cut_chunk_is_noticed(size: int) -> None:
    with pytest.raises(FormatError, match=r"too few|tag is wrong"):
        SegmentCipher(CIPHER_KEY, CIPHER_AAD).open(SEALED[:size])


def test_another_key_or_other_additional_data_open_nothing() -> None:
    for cipher in (SegmentCipher(bytes(32), CIPHER_AAD), SegmentCipher(CIPHER_KEY, bytes(32))):
        with pytest.raises(FormatError, match="tag is wrong"):
            cipher.open(SEALED)


def test_a_key_is_wrapped_as_an_independent_reader_unwraps_it() -> None:
    assert unwrapped(wrap(CIPHER_KEY, key_pair("one").public_key(), os.urandom), private_pem("one")) == CIPHER_KEY
    assert unwrap(wrapped_key(CIPHER_KEY, public_pem("one")), key_pair("one")) == CIPHER_KEY


def test_wrapping_twice_gives_two_texts_of_one_key() -> None:
    public = key_pair("one").public_key()
    one, other = wrap(CIPHER_KEY, public, os.urandom), wrap(CIPHER_KEY, public, os.urandom)
    assert one != other
    assert unwrap(one, key_pair("one")) == unwrap(other, key_pair("one")) == CIPHER_KEY


def test_a_key_for_another_pair_stays_wrapped_and_nothing_of_it_is_told() -> None:
    wrapped = wrap(CIPHER_KEY, key_pair("one").public_key(), os.urandom)
    with pytest.raises(FormatError, match="wrapped for another key") as raised:
        unwrap(wrapped, key_pair("two"))
    assert raised.value.__cause__ is None
    with pytest.raises(FormatError, match="wrapped for another key"):
        unwrap(wrapped[:-1], key_pair("one"))


def test_a_wrapped_key_of_another_length_is_refused() -> None:
    with pytest.raises(FormatError, match="16 bytes instead of 32"):
        unwrap(wrap(bytes(16), key_pair("one").public_key(), os.urandom), key_pair("one"))


def test_the_member_of_a_manifest_reads_back_and_shows_no_key() -> None:
    encryption = Encryption("key-1", b"\x01\x02wrapped", CIPHER_AAD)
    assert Encryption.parse(encryption.data_key_text(), encryption.aad_text()) == encryption
    assert encryption.data_key_text() == "key-1:AQJ3cmFwcGVk"
    assert repr(encryption) == "Encryption(key_pair_id='key-1')"
    assert repr(SegmentCipher(CIPHER_KEY, CIPHER_AAD)) == "SegmentCipher()"


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


# Key pairs from files: rotation, and every way in which a key is not at hand.


@pytest.fixture
def one(tmp_path: Path) -> PemKeyPair:
    return key_files(tmp_path, "one")


@pytest.fixture
def two(tmp_path: Path) -> PemKeyPair:
    return key_files(tmp_path, "two")


def test_what_is_sealed_for_a_pair_is_opened_with_it(one: PemKeyPair) -> None:
    ring = KeyRing([one], "one")
    encryption, cipher = ring.new_segment()
    assert encryption.key_pair_id == "one"
    assert ring.cipher(encryption).open(cipher.seal(b"records", bytes(12))) == b"records"
    assert KeyRing([one]).cipher(encryption).open(cipher.seal(b"records", bytes(12))) == b"records"


def test_every_segment_has_a_key_and_additional_data_of_its_own(one: PemKeyPair) -> None:
    ring = KeyRing([one], "one")
    segments = [ring.new_segment() for _ in range(3)]
    assert len({encryption.aad for encryption, _ in segments}) == 3
    assert len({cipher.key for _, cipher in segments}) == 3


def test_after_a_rotation_old_segments_are_read_and_new_ones_have_the_new_pair(
    one: PemKeyPair, two: PemKeyPair
) -> None:
    old, cipher = KeyRing([one], "one").new_segment()
    ring = KeyRing([one, two], "two")
    assert ring.new_segment()[0].key_pair_id == "two"
    assert ring.cipher(old).open(cipher.seal(b"old", bytes(12))) == b"old"


def test_a_pair_that_is_not_in_the_ring_is_named(one: PemKeyPair, two: PemKeyPair) -> None:
    encryption, _ = KeyRing([one], "one").new_segment()
    with pytest.raises(SegmentKeyError, match=r"key pair 'one'; in remote_storage\.encryption_key_pairs: two"):
        KeyRing([two]).cipher(encryption)


def test_another_pair_under_the_same_id_opens_nothing(one: PemKeyPair, tmp_path: Path) -> None:
    encryption, _ = KeyRing([one], "one").new_segment()
    with pytest.raises(FormatError, match=r"'one': .*wrapped for another key") as raised:
        KeyRing([key_files(tmp_path, "two", called="one")]).cipher(encryption)
    assert raised.value.__cause__ is None


def test_a_public_key_is_enough_to_write_and_not_to_read(one: PemKeyPair) -> None:
    ring = KeyRing([PemKeyPair("one", one.public_key)], "one")
    encryption, _ = ring.new_segment()
    with pytest.raises(SegmentKeyError, match="no private key"):
        ring.cipher(encryption)


@pytest.mark.parametrize("active", [None, "three"])
def test_nothing_is_sealed_without_an_active_pair(one: PemKeyPair, active: str | None) -> None:
    with pytest.raises(SettingError, match="encryption_key_pair_id"):
        KeyRing([one], active).new_segment()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_private_key_that_others_may_read_is_refused(one: PemKeyPair, mode: int) -> None:
    encryption, _ = KeyRing([one], "one").new_segment()
    assert one.private_key is not None
    one.private_key.chmod(mode)
    with pytest.raises(SettingError, match=f"mode {mode:04o}.*chmod 600"):
        KeyRing([one]).cipher(encryption)


def unusable() -> dict[str, bytes]:
    return {
        "empty": b"",
        "no PEM": b"secret",
        "a broken PEM": private_pem("one")[:400],
        "another algorithm": b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n",
        "too large": b"x" * 70_000,
    }


@pytest.mark.parametrize("case", unusable())
def test_a_file_that_is_no_key_is_named_and_not_repeated(one: PemKeyPair, case: str) -> None:
    encryption, _ = KeyRing([one], "one").new_segment()
    assert one.private_key is not None
    for path, ask in (
        (one.public_key, lambda: KeyRing([one], "one").new_segment()),
        (one.private_key, lambda: KeyRing([one]).cipher(encryption)),
    ):
        path.write_bytes(unusable()[case])
        with pytest.raises(SettingError, match=str(path)) as raised:
            ask()
        assert "secret" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_public_and_private_are_not_taken_for_each_other(one: PemKeyPair) -> None:
    encryption, _ = KeyRing([one], "one").new_segment()
    assert one.private_key is not None
    one.private_key.write_bytes(public_pem("one"))
    with pytest.raises(SettingError, match="holds a public key"):
        KeyRing([one]).cipher(encryption)
    one.public_key.write_bytes(private_pem("one"))
    with pytest.raises(SettingError, match="holds a private key"):
        KeyRing([one], "one").new_segment()


def test_files_that_are_no_pair_are_found_before_anything_is_encrypted(
    one: PemKeyPair, two: PemKeyPair, tmp_path: Path
) -> None:
    KeyRing([one], "one").check()
    KeyRing([PemKeyPair("one", one.public_key)], "one").check()
    mixed = KeyRing([PemKeyPair("one", one.public_key, two.private_key)], "one")
    with pytest.raises(SettingError, match="the two keys of 'one' do not match"):
        mixed.check()
    layout = AivenLayout(AivenForm(encrypts=True), mixed)
    with pytest.raises(SettingError, match="do not match"):
        SegmentStorage(FileObjectStore(tmp_path / "store"), layout).check_writable()
    SegmentStorage(FileObjectStore(tmp_path / "store"), AivenLayout(keys=mixed)).check_writable()


def test_a_file_that_is_not_there_is_named(one: PemKeyPair) -> None:
    one.public_key.unlink()
    with pytest.raises(SettingError, match=r"one\.pub\.pem cannot be read: No such file"):
        KeyRing([one], "one").new_segment()


def test_files_are_read_when_they_are_needed_and_once(one: PemKeyPair) -> None:
    ring = KeyRing([one, PemKeyPair("gone", Path("/nowhere/key.pem"))], "one")
    ring.new_segment()
    one.public_key.unlink()
    ring.new_segment()


# A log that is read back while its object goes away, or of which a part is gone.


@pytest.mark.parametrize(
    ("left_bytes", "kind", "words"),
    [
        (None, RemoteResourceNotFoundError, r"chunk 0 of \d+: .*\.log"),
        (0, RemoteResourceNotFoundError, r"chunk 0 of \d+: .*\.log"),
        (1_000, (RemoteResourceNotFoundError, StoredChunkError), r"chunk \d+ of \d+: "),
    ],
    ids=["gone", "empty", "cut"],
)
def test_a_chunk_that_is_not_there_is_named_with_its_segment(
    tmp_path: Path, one: PemKeyPair, left_bytes: int | None, kind: type[Exception], words: str
) -> None:
    layout = AivenLayout(AivenForm(2_000, compresses=True, encrypts=True), KeyRing([one], "one"))
    partition = copied_partition(tmp_path / "store", segments=1, layout=layout)
    (row,) = partition.rows
    reader = partition.storage.open_log_segment(row.metadata, limiter=UnlimitedBytes())
    assert reader.transformed_sizes() is not None
    path = partition.object_path(row, "log")
    path.chmod(0o644)
    if left_bytes is None:
        path.unlink()
    else:
        os.truncate(path, left_bytes)
    with pytest.raises(kind, match=words):
        list(reader.log(0, row.metadata.segment_size_bytes - 1))


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (0, 1_999), (1_999, 2_000), (2_000, 2_000), (2_001, 3_928), (3_000, 3_929)]
)
def test_any_part_of_a_chunked_log_is_exactly_those_bytes(
    tmp_path: Path, one: PemKeyPair, first: int, last: int
) -> None:
    layout = AivenLayout(AivenForm(2_000, compresses=True, encrypts=True), KeyRing([one], "one"))
    partition = copied_partition(tmp_path / "store", segments=1, layout=layout)
    (row,) = partition.rows
    reader = partition.storage.open_log_segment(row.metadata, limiter=UnlimitedBytes())
    whole = b"".join(reader.log(0, row.metadata.segment_size_bytes - 1))
    assert extend_crc32c(0, whole) == row.log_crc32c
    assert b"".join(reader.log(first, last)) == whole[first : last + 1]
