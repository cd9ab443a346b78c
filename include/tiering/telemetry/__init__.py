"""Loggers that redact what looks like a secret. A `PartitionLogger` begins its lines with a partition in brackets.

Metrics are in `telemetry.metrics`.
"""

import logging
import re
from collections.abc import MutableMapping
from typing import Any, Final

from include.tiering.model.segments import TopicIdPartition

# Lines may repeat what a broker or server sent, at any length. So the work is linear: a pattern is tried only where a
# word begins, and what a quantifier with a second "+" took is not tried again in shorter pieces.
_WORD: Final = re.compile(r"\S+")
_URL_USER: Final = re.compile(r"(?<![\w+.-])[\w+.-]++://[^:@/\s]*+:")
_NAMES: Final = r"(?:password|passwd|secret|token|signature|credential)"
_NAMED_SECRET: Final = re.compile(
    rf"""(?i)(?<![\w-])((?:(?!{_NAMES})[\w-])*+{_NAMES}[\w-]*+["']?\s*+[=:]\s*+["']?)[^\s,;&"']++"""
)
_LIBRARY: Final = "include"
_LINE: Final = "%(asctime)s %(levelname)s %(message)s"


def redact(text: str) -> str:
    """Return the text with `***` for passwords in URLs, and for values named like a secret, as in `token=x`."""
    if "://" in text and "@" in text:
        text = _WORD.sub(_without_password, text)
    return _NAMED_SECRET.sub(r"\1***", text)


def _without_password(word: re.Match[str]) -> str:
    """Return a word without the password of a URL, which reaches to the last `@`."""
    before, at, after = word[0].rpartition("@")
    user = _URL_USER.search(before)
    return word[0] if user is None else f"{before[: user.end()]}***{at}{after}"


class _Redaction(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), ()
        return True


class PartitionLogger(logging.LoggerAdapter[logging.Logger]):
    """Begins every line with `[topic-partition]`."""

    def __init__(self, logger: logging.Logger, partition: TopicIdPartition) -> None:
        super().__init__(logger)
        self._prefix = f"[{partition}] "

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return self._prefix + str(msg), kwargs


def get_logger(name: str) -> logging.Logger:
    """Return the logger of this name, which redacts its lines."""
    logger = logging.getLogger(name)
    if not any(isinstance(known, _Redaction) for known in logger.filters):
        logger.addFilter(_Redaction())
    return logger


def for_partition(logger: logging.Logger, partition: TopicIdPartition) -> PartitionLogger:
    return PartitionLogger(logger, partition)


def log_to_stderr(level: int) -> None:
    """Log to standard error, redacted: this library from `level` on, others only from WARNING on. For commands."""
    handler = logging.lastResort
    if handler is not None:
        handler.setLevel(level)
        handler.setFormatter(logging.Formatter(_LINE))
        handler.addFilter(_Redaction())
    logging.getLogger(_LIBRARY).setLevel(level)
