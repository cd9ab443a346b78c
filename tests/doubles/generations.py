"""What a database accepts of a store's marker, without a database."""

from collections.abc import Callable

from include.tiering.model.ownership import AcceptedMarkers, StoreMarker


def always(marker: StoreMarker) -> Callable[[], AcceptedMarkers]:
    """Of a database whose generation nobody raises."""
    return lambda: AcceptedMarkers(marker)
