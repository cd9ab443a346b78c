"""What a key says before any layout is asked."""

import pytest

from include.tiering.audit.rules import is_marker_or_probe, named_segment_id

SEGMENT_ID = "__79_Pv6-fj39vX08_Lx8A"
FILE = f"00000000000000000042-{SEGMENT_ID}"


@pytest.mark.parametrize(
    "key",
    [
        f"orders-AQIDBAUGBwgJCgsMDQ4PEA/3/{FILE}.log",
        f"{FILE}.rsm-manifest",
        f"/{FILE}.leader_epoch_checkpoint",
        f"any\nthing/../{FILE}.timeindex",
    ],
)
def test_a_segment_id_stands_in_the_last_part_under_any_prefix(key: str) -> None:
    assert named_segment_id(key) == SEGMENT_ID


@pytest.mark.parametrize(
    "key",
    [
        "",
        FILE,
        f"{FILE}.log/",
        f"{FILE}.log\n",
        f"{FILE}.log.gz",
        f"x{FILE}.log",
        f"0{FILE}.log",
        f"{FILE}x.log",
        f"{FILE.replace('_', '~')}.log",
        "orders/00000000000000000042.log",
    ],
)
def test_other_keys_name_none(key: str) -> None:
    assert named_segment_id(key) is None


def test_our_own_objects_are_the_marker_and_probes() -> None:
    assert is_marker_or_probe("_tiering-store.json")
    assert is_marker_or_probe("_tiering-probe-0123456789abcdef")
    for other in ("_tiering-store.json.bak", "a/_tiering-store.json", "_tiering-probe-x", "_tiering-other"):
        assert not is_marker_or_probe(other)
