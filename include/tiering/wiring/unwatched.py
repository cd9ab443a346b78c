"""What verbs tell of their progress when nobody asked."""


def ignore(*_: object) -> None:
    """For callers that do not watch."""
