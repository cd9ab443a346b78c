"""What keeps a hand-over from being rehearsed on a throw-away broker."""

from include.tiering.errors.root import TieringError


class RehearsalError(TieringError):
    """A hand-over cannot be rehearsed; nothing but the rehearsal's own directory was written."""


class KafkaMissingError(RehearsalError):
    """No Java, or not all the jars of a broker; the text says which, and where they can be had."""


class RehearsalRoomError(RehearsalError):
    """The temporary directory has no room for what would be copied into it."""


class BrokerProcessError(RehearsalError):
    """A broker that was started here ended, or was not ready in time. With the end of its log."""


class PortTakenError(BrokerProcessError):
    """Somebody else listens on its port."""
