"""Admission of fetches, and that every waiting one is admitted."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from include.tiering.quotas.contract import NAMELESS_CLIENT, QuotaKind, QuotaLevel, QuotasInForce, Scope, fetch_scopes
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.quotas.shared_quotas import AnnouncingLedger, ledger_row_from_text, ledger_row_to_text
from include.tiering.quotas.shares import LEASE_SECONDS, SILENT_SECONDS, Demand, LedgerRow, Liveness, renewed
from include.tiering.units import KIB, MIB
from tests.doubles.manual_clock import ManualClock
from tests.doubles.quotas import MemoryLedgerStore

# Who may read now, who is asked to stay away and for how long.

SCOPES = fetch_scopes(1, "orders", "reports")
TOTAL, BROKER, TOPIC, CLIENT = SCOPES


def admission_of(
    quotas: Mapping[Scope, int], clock: ManualClock | None = None, ledger: MemoryLedgerStore | None = None
) -> FetchAdmission:
    """The admission of one process; `quotas` are stored as version 1."""
    clock = clock or ManualClock()
    ledger = ledger or MemoryLedgerStore()
    stored = QuotasInForce(1, quotas)
    return FetchAdmission(ledger.exchange, clock.now_ms, stored=lambda: stored, has_no_limit=lambda _: not quotas)


def test_without_a_limit_everything_is_admitted() -> None:
    admission = admission_of({})
    assert [admission.admit(SCOPES, 100 * MIB) for _ in range(3)] == [0, 0, 0]


def test_the_throttle_time_is_kafkas() -> None:
    """4 MiB at 1 MiB/s: 3 s more than the second that they are divided by; 4 s later the next 4 MiB."""
    clock = ManualClock()
    admission = admission_of({BROKER: MIB}, clock)
    assert admission.admit(SCOPES, 4 * MIB) == 0
    assert admission.throttle_ms(SCOPES) == admission.admit(SCOPES, 1) == 3000
    clock.advance(4)
    assert admission.admit(SCOPES, 4 * MIB) == 0
    assert admission.throttle_ms(SCOPES) == 4000


def test_the_largest_of_the_scopes_counts() -> None:
    admission = admission_of({TOTAL: 50, TOPIC: 10, CLIENT: 25})
    admission.admit(SCOPES, 100)
    assert [admission.throttle_ms([scope]) for scope in SCOPES] == [1000, 0, 9000, 3000]
    assert admission.throttle_ms(SCOPES) == 9000


def test_who_is_throttled_is_not_recorded() -> None:
    admission = admission_of({CLIENT: 10})
    admission.admit(SCOPES, 20)
    assert admission.admit(SCOPES, 1_000_000) == 1000
    assert admission.throttle_ms(SCOPES) == 1000


def test_a_change_of_the_quota_counts_from_the_next_question_on() -> None:
    ledger = MemoryLedgerStore()
    admission = admission_of({TOTAL: 10}, ledger=ledger)
    admission.admit(SCOPES, 20)
    announce = AnnouncingLedger(ledger, ManualClock()).announce
    announce(QuotasInForce(2, {TOTAL: 5}))
    assert admission.throttle_ms(SCOPES) == 3000
    announce(QuotasInForce(3, {TOTAL: 20}))
    assert admission.throttle_ms(SCOPES) == 0


def test_what_other_processes_read_counts() -> None:
    """Each command is a process of its own, and asks once."""
    clock, ledger = ManualClock(), MemoryLedgerStore()
    assert admission_of({TOTAL: 10}, clock, ledger).admit(SCOPES, 50) == 0
    assert admission_of({TOTAL: 10}, clock, ledger).admit(SCOPES, 50) == 4000
    clock.advance(11)
    assert admission_of({TOTAL: 10}, clock, ledger).admit(SCOPES, 50) == 0


def test_the_windows_survive_the_rounds_of_workers_and_the_text_of_the_row() -> None:
    ledger = MemoryLedgerStore()
    admission = admission_of({TOTAL: 10}, ledger=ledger)
    admission.admit(SCOPES, 50)
    ledger.exchange(lambda row: renewed(row, "a", [Demand((TOTAL,), 1.0)], 1))
    ledger.exchange(lambda row: ledger_row_from_text(ledger_row_to_text(row)))
    assert admission.throttle_ms(SCOPES) == 4000


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_steps_throttles_nobody_for_long(hours: int) -> None:
    clock = ManualClock()
    admission = admission_of({TOTAL: 10}, clock)
    admission.admit(SCOPES, 50)
    clock.step(hours * 3_600_000)
    assert admission.admit(SCOPES, 50) == 0
    assert admission.admit(SCOPES, 50) == 4000


def test_the_windows_of_another_length_begin_anew() -> None:
    clock, ledger = ManualClock(), MemoryLedgerStore()
    admission_of({TOTAL: 10}, clock, ledger).admit(SCOPES, 50)
    window = ledger.exchange(lambda row: row).reads[TOTAL]
    longer = replace(window, samples=window.samples * 13)
    ledger.exchange(lambda row: replace(row, reads={TOTAL: longer}))
    assert admission_of({TOTAL: 10}, clock, ledger).throttle_ms(SCOPES) == 0


def test_without_a_quota_the_ledger_is_left_alone() -> None:
    def exchange(_: object) -> LedgerRow:
        raise AssertionError("nobody needs it")

    admission = FetchAdmission(
        exchange, ManualClock().now_ms, stored=lambda: QuotasInForce(0, {}), has_no_limit=lambda _: True
    )
    assert (admission.throttle_ms(SCOPES), admission.admit(SCOPES, MIB)) == (0, 0)
    assert admission.lowest_quota(SCOPES) is None
    admission.record(SCOPES, MIB)


def test_readers_see_the_lowest_quota_and_the_window() -> None:
    admission = admission_of({TOTAL: 10, CLIENT: 7})
    assert (admission.lowest_quota(SCOPES), admission.window_seconds) == (7, 11.0)


def test_who_gives_no_name_has_the_default_quota_of_clients() -> None:
    admission = admission_of({CLIENT.default: 10})
    nameless = fetch_scopes(1, "orders", NAMELESS_CLIENT)
    assert [admission.admit(nameless, 50), admission.admit(nameless, 50)] == [0, 4000]
    assert admission.admit(SCOPES, 50) == 0, "a client with a name has a share of its own"
    platform = fetch_scopes(1, "orders")
    assert [admission.admit(platform, 50), admission.admit(platform, 50)] == [0, 0]


def test_many_clients_leave_nothing_behind() -> None:
    clock, ledger = ManualClock(), MemoryLedgerStore()
    default = Scope(QuotaKind.FETCH, QuotaLevel.CLIENT)
    admission = admission_of({default: 1}, clock, ledger)
    for number in range(2_000):
        admission.admit([Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, str(number))], 1)
        clock.advance(0.1)
    assert len(ledger.exchange(lambda row: row).reads) <= 111


POLITE = "abcd"
ASKED_BYTES = 600 * 80 * KIB


def minute_with_a_rogue(client_quota: int | None) -> dict[str, int]:
    """Bytes by client of a minute in steps of 10 ms under a total of 5 MiB/s.

    The rogue asks twice in each step; four polite clients ask for 0.8 MiB/s each.
    """
    clock = ManualClock()
    of_clients = {} if client_quota is None else {Scope(QuotaKind.FETCH, QuotaLevel.CLIENT): client_quota}
    admission = admission_of({TOTAL: 5 * MIB, **of_clients}, clock)
    got = dict.fromkeys(("rogue", *POLITE), 0)

    def ask(name: str, size_bytes: int) -> None:
        if admission.admit(fetch_scopes(1, "orders", name), size_bytes) == 0:
            got[name] += size_bytes

    for step in range(6_000):
        for _ in range(2):
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
