"""Values of settings that have a form of their own: which are accepted, and what becomes of them."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.settings.fields import (
    check_absolute_path,
    check_byte_bound,
    check_directories,
    check_endpoint_url,
    check_price,
    check_topic_deletion,
    check_topic_pattern,
    days_of_expiry,
    split_log_dirs,
)


@pytest.mark.parametrize(
    ("value", "days"), [("keep", None), ("expire:1d", 1), ("expire:30d", 30), ("expire:99999d", 99_999)]
)
def test_what_becomes_of_a_deleted_topic(value: str, days: int | None) -> None:
    assert days_of_expiry(value) == days
    assert check_topic_deletion(f"  {value} ") == value


@pytest.mark.parametrize(
    "value", ["", "expire", "expire:0d", "expire:30", "expire:030d", "expire:100000d", "expire:1d\n"]
)
def test_other_words_about_a_deleted_topic_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="accepted: keep, or expire:Nd"):
        days_of_expiry(value)


def test_only_text_is_read_as_what_becomes_of_a_deleted_topic() -> None:
    with pytest.raises(ValueError, match="accepted: keep"):
        check_topic_deletion(" expire:0d ")
    assert check_topic_deletion(7) == 7


@pytest.mark.parametrize("path", ["/", "/a/b", "/a..b/c", "/.../x"])
def test_an_absolute_path_is_accepted(path: str) -> None:
    assert check_absolute_path(path) == path


@pytest.mark.parametrize("path", ["", "a/b", "./a", "/a/../b", "/..", "/a\0b"])
def test_a_path_that_may_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="an absolute path without"):
        check_absolute_path(path)


@pytest.mark.parametrize(
    ("price", "text"), [("0.023", "0.023"), (0.023, "0.023"), (5, "5"), ("123456789.123456789",) * 2]
)
def test_a_price_keeps_its_digits(price: Any, text: str) -> None:
    assert check_price(price) == text


@pytest.mark.parametrize("price", ["", "-1", "+1", "1e-3", "1.", ".5", "1,5", True, None, "1234567890", "1.1234567890"])
def test_what_is_no_plain_decimal_is_no_price(price: Any) -> None:
    with pytest.raises(ValueError, match=r"a decimal number such as 0\.023"):
        check_price(price)


@pytest.mark.parametrize("url", ["http://localhost:9000", "https://s3.example.org", None])
def test_an_endpoint_is_a_server(url: Any) -> None:
    assert check_endpoint_url(url) == url


@pytest.mark.parametrize(
    "url", ["", "s3.example.org", "ftp://host", "http://", "https://user:word@host", "http://me@host"]
)
def test_an_endpoint_without_a_host_or_with_credentials_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="without credentials"):
        check_endpoint_url(url)


def test_log_dirs_in_one_line() -> None:
    assert split_log_dirs("1:/a, 2:/b:c") == [{"broker_id": "1", "path": "/a"}, {"broker_id": "2", "path": "/b:c"}]
    assert split_log_dirs([{"broker_id": 1}]) == [{"broker_id": 1}]
    with pytest.raises(ValueError, match="'/a' is not BROKER_ID:PATH"):
        split_log_dirs("/a")


@pytest.mark.parametrize(
    ("pattern", "is_accepted"), [("o*", True), ("a" * 249, True), ("a" * 250, False), ("", False), ("a/b", False)]
)
def test_a_pattern_of_topics(pattern: str, is_accepted: bool) -> None:
    if is_accepted:
        assert check_topic_pattern(pattern) == pattern
    else:
        with pytest.raises(ValueError, match="a topic pattern has 1 to 249"):
            check_topic_pattern(pattern)


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        ([], None),
        (["/a", "/b"], None),
        (["/a", "b"], "'b' is not an absolute path"),
        (["/a/../b"], "is not an absolute path"),
        (["/a", "/b", "/a"], "'/a' is listed twice"),
    ],
)
def test_directories_are_absolute_and_each_is_one(paths: list[str], says: str | None) -> None:
    if says is None:
        check_directories([Path(path) for path in paths])
    else:
        with pytest.raises(ValueError, match=says):
            check_directories([Path(path) for path in paths])


@pytest.mark.parametrize("value", [-1, 1, 2**40])
def test_a_bound_of_bytes(value: int) -> None:
    assert check_byte_bound(value) == value


def test_a_bound_that_admits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 bytes would admit no request"):
        check_byte_bound(0)
