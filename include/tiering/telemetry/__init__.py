"""Log lines (`logs`) and metrics (`metric`, `recorder`)."""

from include.tiering.telemetry.logs import for_partition, get_logger, log_to_stderr, redact

__all__ = ["for_partition", "get_logger", "log_to_stderr", "redact"]
