"""Fencing tokens: of a time, with random bits, and above the token that is held."""

from include.tiering.database.transactions import TOKEN_RANDOM_BITS, draw_token, token_after

NOW_MS = 1_700_000_000_000


def test_a_token_holds_its_time_and_random_bits() -> None:
    drawn = {draw_token(NOW_MS) for _ in range(20)}
    assert {token >> TOKEN_RANDOM_BITS for token in drawn} == {NOW_MS}
    assert len(drawn) > 1


def test_a_token_is_above_the_one_before_whatever_the_clock_does() -> None:
    held = (NOW_MS << TOKEN_RANDOM_BITS) + 7
    assert token_after(held, held + 1) == held + 1
    for drawn in (held, held - 1, (5 << TOKEN_RANDOM_BITS) + 3):
        expected = (NOW_MS + 1 << TOKEN_RANDOM_BITS) + drawn % (1 << TOKEN_RANDOM_BITS)
        assert token_after(held, drawn) == expected > held
