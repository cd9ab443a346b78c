import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import checkpoints
from include.tiering.formats.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    parse_offset_checkpoint,
    serialize_offset_checkpoint,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.broker_data import broker_data


def test_offsets_by_partition() -> None:
    data = b"0\n3\norders 0 1500\norders 1 77\npayments.v1-eu_x 12 9223372036854775807\n"
    assert parse_offset_checkpoint(data) == {
        ("orders", 0): 1500,
        ("orders", 1): 77,
        ("payments.v1-eu_x", 12): 2**63 - 1,
    }


def test_offsets_are_written_as_brokers_write_them() -> None:
    written = (broker_data("public") / "stopped" / "broker-1" / "recovery-point-offset-checkpoint").read_bytes()
    assert len(parse_offset_checkpoint(written)) > 5
    assert serialize_offset_checkpoint(parse_offset_checkpoint(written)) == written
    assert serialize_offset_checkpoint({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n"])
def test_a_checkpoint_without_entries(data: bytes) -> None:
    assert parse_offset_checkpoint(data) == {}
    assert checkpoints.parse_leader_epochs(data) == LeaderEpochs()


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"1\n0\n", 0, "version '1\\n' is not 0"),
        (b"\n0\n", 0, "is not 0"),
        (b"0\nx\n", 2, "not a number: 'x'"),
        (b"0\n-1\n", 2, "-1 is outside"),
        (b"0\n1\n", 2, "1 entries announced, 0 lines follow"),
        (b"0\n1\na 0 1\nb 0 1\n", 2, "1 entries announced, 2 lines follow"),
        (b"0\n2147483647\na 0 1\n", 2, "2147483647 entries announced"),
        (b"0\n99999999999999999999\n", 2, "not a number"),
        (b"0\n1\na 0\n", 4, "2 fields instead of 3: 'a 0\\n'"),
        (b"0\n2\na 0 1\na b 0 1\n", 10, "4 fields instead of 3"),
        (b"0\n1\na 0 -1\n", 4, "-1 is outside"),
        (b"0\n1\na 0 9223372036854775808\n", 4, "is outside"),
        (b"0\n1\na 2147483648 1\n", 4, "is outside"),
        (b"0\n1\na +0 1\n", 4, "not a number"),
        (b"0\n1\na 1_0 1\n", 4, "not a number"),
        ("0\n1\na ٣ 1\n".encode(), 4, "not a number"),
        (b"0\n1\n../etc 0 1\n", 4, "not a legal topic name"),
        (b"0\n1\n.. 0 1\n", 4, "not a legal topic name"),
        (b"0\n1\n\xff\x1b 0 1\n", 4, "not a legal topic name"),
        (b"0\n2\na 0 1\na 0 2\n", 10, "a-0 is listed twice"),
    ],
)
def test_checkpoints_that_no_broker_writes(data: bytes, position: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_offset_checkpoint(data)
    assert caught.value.position == position
    assert message in caught.value.message


def test_an_error_repeats_little_of_a_long_line() -> None:
    with pytest.raises(FormatError) as caught:
        parse_offset_checkpoint(b"0\n1\n" + b"x" * 100_000 + b"\n")
    assert len(caught.value.message) < 200


def test_a_checkpoint_larger_than_any_broker_s_is_not_parsed() -> None:
    with pytest.raises(FormatError, match="at most"):
        parse_offset_checkpoint(b"0" * (MAX_CHECKPOINT_BYTES + 1))


def test_leader_epochs_as_a_broker_writes_them() -> None:
    history = LeaderEpochs.of([(0, 0), (3, 1500), (4, 1500)])
    assert checkpoints.serialize_leader_epochs(history) == b"0\n3\n0 0\n3 1500\n4 1500\n"
    assert checkpoints.parse_leader_epochs(b"0\n3\n0 0\n3 1500\n4 1500\n") == history
    assert checkpoints.serialize_leader_epochs(LeaderEpochs()) == b"0\n0\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0\n2\n3 0\n3 10\n", "do not ascend"),
        (b"0\n2\n3 10\n4 5\n", "do not ascend"),
        (b"0\n1\n-1 0\n", "-1 is outside"),
        (b"0\n1\n0 -1\n", "-1 is outside"),
        (b"0\n1\n2147483648 0\n", "is outside"),
        (b"0\n1\n0 0 0\n", "3 fields instead of 2"),
    ],
)
def test_histories_that_no_broker_writes(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        checkpoints.parse_leader_epochs(data)
