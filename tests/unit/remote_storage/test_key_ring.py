"""Key pairs from files: rotation, and every way in which a key is not at hand."""

from pathlib import Path

import pytest

from include.tiering.errors import FormatError, SegmentKeyError, SettingError
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing, PemKeyPair
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.key_pairs import key_files, private_pem, public_pem


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
    with pytest.raises(SettingError, match="'one' are no pair"):
        mixed.check()
    layout = AivenLayout(AivenForm(encrypts=True), mixed)
    with pytest.raises(SettingError, match="are no pair"):
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
