"""Admission of fetches, and that every waiting one is admitted."""

from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope, fetch_scopes
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.quotas.shares import LEASE_SECONDS, SILENT_SECONDS, Liveness
from include.tiering.units import KIB, MIB
from tests.doubles.manual_clock import ManualClock

# Who may read now, who is asked to stay away and for how long.

SCOPES = fetch_scopes(1, "orders", "reports")
TOTAL, BROKER, TOPIC, CLIENT = SCOPES


class Shares(dict[Scope, float | None]):
    """Bytes a second by scope; no limit where nothing is set."""

    def of(self, scope: Scope) -> float | None:
        return self.get(scope)


def test_without_a_limit_everything_is_admitted() -> None:
    admission = FetchAdmission(Shares().of, ManualClock())
    assert [admission.admit(SCOPES, 100 * MIB) for _ in range(3)] == [0, 0, 0]


def test_the_throttle_time_is_kafkas() -> None:
    """4 MiB at 1 MiB/s: 3 s more than the second that they are divided by; 4 s later the next 4 MiB."""
    clock = ManualClock()
    admission = FetchAdmission(Shares({BROKER: MIB}).of, clock)
    assert admission.admit(SCOPES, 4 * MIB) == 0
    assert admission.throttle_ms(SCOPES) == admission.admit(SCOPES, 1) == 3000
    clock.advance(4)
    assert admission.admit(SCOPES, 4 * MIB) == 0
    assert admission.throttle_ms(SCOPES) == 4000


def test_the_largest_of_the_scopes_counts() -> None:
    admission = FetchAdmission(Shares({TOTAL: 50, TOPIC: 10, CLIENT: 25}).of, ManualClock())
    admission.admit(SCOPES, 100)
    assert [admission.throttle_ms([scope]) for scope in SCOPES] == [1000, 0, 9000, 3000]
    assert admission.throttle_ms(SCOPES) == 9000


def test_who_is_throttled_is_not_recorded() -> None:
    shares = Shares({CLIENT: 10})
    admission = FetchAdmission(shares.of, ManualClock())
    admission.admit(SCOPES, 20)
    assert admission.admit(SCOPES, 1_000_000) == 1000
    assert admission.throttle_ms(SCOPES) == 1000


def test_a_change_of_the_quota_counts_from_the_next_question_on() -> None:
    shares = Shares({TOTAL: 10})
    admission = FetchAdmission(shares.of, ManualClock())
    admission.admit(SCOPES, 20)
    shares[TOTAL] = 5
    assert admission.throttle_ms(SCOPES) == 3000
    shares[TOTAL] = 20
    assert admission.throttle_ms(SCOPES) == 0


def test_an_unknown_share_is_left_to_the_limiter() -> None:
    admission = FetchAdmission(Shares({TOTAL: 0.0}).of, ManualClock())
    assert [admission.admit(SCOPES, MIB) for _ in range(2)] == [0, 0]


def test_many_clients_leave_nothing_behind() -> None:
    clock = ManualClock()
    admission = FetchAdmission(Shares().of, clock)
    for number in range(10_000):
        admission.admit([Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, str(number))], 1)
        clock.advance(0.1)
    assert len(admission._windows) <= 1_000


POLITE = "abcd"
ASKED_BYTES = 600 * 80 * KIB


def minute_with_a_rogue(client_quota: int | None) -> dict[str, int]:
    """Bytes by client of a minute in steps of 10 ms under a total of 5 MiB/s.

    The rogue asks five times in each step; four polite clients ask for 0.8 MiB/s each.
    """
    clock = ManualClock()
    shares = Shares({TOTAL: 5 * MIB})
    for name in ("rogue", *POLITE):
        shares[Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, name)] = client_quota
    admission = FetchAdmission(shares.of, clock)
    got = dict.fromkeys(("rogue", *POLITE), 0)

    def ask(name: str, size_bytes: int) -> None:
        if admission.admit(fetch_scopes(1, "orders", name), size_bytes) == 0:
            got[name] += size_bytes

    for step in range(6_000):
        for _ in range(5):
            ask("rogue", 256 * KIB)
        if step % 10 == 0:
            for name in POLITE:
                ask(name, 80 * KIB)
        clock.advance(0.01)
    return got


def test_client_quotas_keep_a_rogue_from_starving_the_others() -> None:
    got = minute_with_a_rogue(MIB)
    assert all(got[name] >= 0.95 * ASKED_BYTES for name in POLITE), got
    assert 0.95 * 60 * MIB <= got["rogue"] <= 1.1 * 60 * MIB


def test_without_client_quotas_it_would() -> None:
    got = minute_with_a_rogue(None)
    assert all(got[name] < 0.5 * ASKED_BYTES for name in POLITE), got


# Silence is decided by the observer's clock alone.


def test_an_entry_is_alive_when_it_is_seen_first_and_until_its_lease_must_have_ended() -> None:
    liveness = Liveness()
    assert liveness.silent({"a": 1}, 100.0) == frozenset()
    assert liveness.silent({"a": 1}, 100.0 + LEASE_SECONDS) == frozenset()
    assert liveness.silent({"a": 1}, 100.01 + SILENT_SECONDS) == {"a"}


def test_a_beat_begins_the_time_anew() -> None:
    liveness = Liveness()
    liveness.silent({"a": 1, "b": 1}, 0.0)
    liveness.silent({"a": 2, "b": 1}, 1.0)
    assert liveness.silent({"a": 2, "b": 1}, 2.0) == {"b"}


def test_an_entry_that_came_back_is_alive() -> None:
    liveness = Liveness()
    liveness.silent({"a": 1}, 0.0)
    liveness.silent({}, 5.0)
    assert liveness.silent({"a": 1}, 10.0) == frozenset()
