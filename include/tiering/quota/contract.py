"""What a sender asks before it sends."""

from typing import Protocol


class ByteLimiter(Protocol):
    """Grants bytes. Charged before they are sent, by the process that sends them, retries included."""

    def acquire(self, size_bytes: int) -> None:
        """Blocks until `size_bytes` may be sent.

        Raises:
            SendingStoppedError: paused for long, or the work behind this sender was taken away.
            LeaseLostError: another worker owns the partition now.
        """
        ...


class UnlimitedBytes:
    """Every byte at once: for reads and writes that no quota counts."""

    def acquire(self, size_bytes: int) -> None:
        return None
