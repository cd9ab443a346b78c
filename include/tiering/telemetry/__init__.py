"""Loggers that redact what looks like a secret. A `PartitionLogger` begins its lines with a partition in brackets.

Metrics are in `telemetry.metrics`.
"""

import logging
import re
from collections.abc import MutableMapping
from typing import Any, Final

from include.tiering.model.segments import TopicIdPartition

_URL_PASSWORD: Final = re.compile(r"([a-zA-Z][\w+.-]*://[^:@/\s]*):[^\s]*@")
_NAMED_SECRET: Final = re.compile(
    r"""(?i)([\w-]*(?:password|passwd|secret|token|signature|credential)[\w-]*["']?\s*[=:]\s*["']?)[^\s,;&"']+"""
)
_LIBRARY: Final = "include"
_LINE: Final = "%(asctime)s %(levelname)s %(message)s"


def redact(text: str) -> str:
    """Return the text with `***` for passwords in URLs, and for values named like a secret, as in `token=x`."""
    return _NAMED_SECRET.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", text))


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
