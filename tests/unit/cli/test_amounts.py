"""Bytes and durations as people write them, on the command line, in settings and in dynamic configs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer import BadParameter
from typer.testing import Result

from include.tiering.cli.command import amount_of, duration_in
from include.tiering.configs.config_catalogue import config_on
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.errors import SettingError
from include.tiering.settings import load_settings
from include.tiering.units import without_suffix

Run = Callable[..., Result]
ORDERS = ConfigEntity(EntityType.TOPICS, "orders")
COPY = "remote.log.manager.copy.max.bytes.per.second"


@pytest.mark.parametrize(
    ("text", "unit", "plain"),
    [
        ("52428800", "bytes", "52428800"),
        ("50MiB", "bytes", "52428800"),
        (" 50 MiB ", "bytes a second", "52428800"),
        ("1.5GiB", "bytes", "1610612736"),
        ("2TiB", "bytes", "2199023255552"),
        ("1KiB", "bytes", "1024"),
        ("7d", "milliseconds", "604800000"),
        ("12h", "seconds", "43200"),
        ("90m", "milliseconds", "5400000"),
        ("500ms", "milliseconds", "500"),
        ("2d", "hours", "48"),
    ],
)
def test_an_amount_is_a_whole_number_of_its_unit(text: str, unit: str, plain: str) -> None:
    assert without_suffix(text, unit) == plain


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("50MB", "bytes"),  # Is it 10^6 or 2^20?
        ("50mib", "bytes"),
        ("7d", "bytes"),
        ("50MiB", "milliseconds"),
        ("7d", "slots"),
        ("7d", None),
        ("500ms", "seconds"),  # No whole second.
        ("0.0001KiB", "bytes"),
        ("-1KiB", "bytes"),
        ("-1", "bytes"),
        ("1e3KiB", "bytes"),
        ("\u0665KiB", "bytes"),  # An Arabic digit.
        ("", "bytes"),
    ],
)
def test_anything_else_is_left_to_the_check_of_the_number(text: str, unit: str | None) -> None:
    assert without_suffix(text, unit) == text


def test_quotas_retention_and_settings_take_suffixes() -> None:
    assert config_on(ALL_BROKERS, COPY).canonical("50MiB") == "52428800"
    assert config_on(ORDERS, "retention.ms").canonical("7d") == "604800000"
    assert config_on(ORDERS, "retention.bytes").canonical("-1") == "-1"
    assert config_on(ALL_BROKERS, "queued.max.bytes").canonical("1GiB") == "1073741824"
    assert config_on(ALL_BROKERS, "tiering.copier.batch.max.seconds").canonical("10m") == "600"
    for name, text in (("queued.max.requests", "1KiB"), ("tiering.clock.ignored.until.ms", "7d")):
        with pytest.raises(SettingError, match=r"accepted: integer"):
            config_on(ALL_BROKERS, name).canonical(text)


@pytest.mark.parametrize("name", [COPY, "queued.max.bytes"])
def test_a_refusal_names_the_suffixes(name: str) -> None:
    with pytest.raises(SettingError, match=r"'50MB': accepted: .*; also with KiB, MiB, GiB or TiB, such as 50MiB"):
        config_on(ALL_BROKERS, name).canonical("50MB")


def test_the_file_and_the_environment_take_suffixes(tmp_path: Path) -> None:
    file = tmp_path / "tiering.toml"
    file.write_text('tiering.expiration.min.bytes = "2GiB"\nremote_storage.chunk_size = "8MiB"\n')
    settings = load_settings(file, environ={"TIERING_COPIER__LEASE__MS": "1m", "TIERING_DATA_DOCS__KEEP_DAYS": "7d"})
    assert (settings.expiration.min_bytes, settings.remote_storage.chunk_size) == (2 * 1024**3, 8 * 1024**2)
    assert (settings.copier.lease_ms, settings.data_docs.keep_days) == (60_000, 7)
    with pytest.raises(SettingError, match=r"such as 7d"):
        load_settings(environ={"TIERING_COPIER__LEASE__MS": "1 minute"})


def test_options_take_suffixes() -> None:
    assert [amount_of("bytes", at_least=1)(text) for text in ("1", "1KiB", 7)] == [1, 1024, 7]
    assert [duration_in("days")(text) for text in ("0.5", "12h", "30d", 5.0)] == [0.5, 0.5, 30.0, 5.0]
    for parser, text in (
        (amount_of("bytes", at_least=1), "0"),
        (amount_of("bytes"), "-1"),
        (amount_of("milliseconds"), "7w"),
        (duration_in("days"), "nan"),
        (duration_in("seconds", at_least=0.1), "50ms"),
    ):
        with pytest.raises(BadParameter, match=r"accepted: .* to "):
            parser(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("copy", "--limit-bytes", "0"),
        ("verify", "--older-than-days", "soon"),
        ("fetch", "orders", "0", "--output", "x", "--max-bytes", "1MB"),
        ("handover", "orders", "--local-retention-ms", "7w"),
        ("ingest", "--poll-seconds", "0"),
    ],
)
def test_a_wrong_amount_is_refused_with_what_is_accepted(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert ": accepted: " in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("client", ["", "two\nlines", "x" * 256])
def test_a_client_that_can_have_no_quota_is_refused(run: Run, client: str) -> None:
    result = run("fetch", "orders", "0", "--output", "x", "--offset", "0", "--client", client)
    assert result.exit_code == 2
    assert "is no client: accepted: 1 to 255 printable characters" in result.stderr.replace("\n", " ")


def test_a_plan_is_limited_by_an_amount_with_a_suffix(run: Run) -> None:
    assert run("plan", "--limit-bytes", "50MiB").exit_code == run("plan", "--limit-bytes", "52428800").exit_code
