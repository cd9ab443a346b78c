"""Shell style patterns of topics."""

import pytest

from include.tiering.kafka.log_dirs.contract import matches


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, True),
        ([], False),
        (["*"], True),
        (["orders"], True),
        (["ord*"], True),
        (["ORDERS"], False),
        (["a", "o?ders"], True),
    ],
)
def test_patterns(patterns: list[str] | None, expected: bool) -> None:
    assert matches("orders", patterns) is expected
