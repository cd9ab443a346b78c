"""The report of `events`: who decided what, and when."""

from collections.abc import Sequence
from typing import TypedDict

from include.tiering.database.event_log import Event
from include.tiering.presentation import Presentation, Table, count
from include.tiering.units import format_utc


class EventDocument(TypedDict):
    """An event; `kind` is a code, `author` a person or the part of the platform that decided."""

    occurred_at_ms: int
    kind: str
    subject: str
    detail: str
    author: str


class EventsDocument(TypedDict):
    """The last events, the newest first."""

    events: list[EventDocument]


def present_events(events: Sequence[Event], most: int) -> Presentation:
    """Present events in the given order. `most` is the highest number of events that was requested."""
    rows = tuple(
        (format_utc(event.occurred_at_ms), event.author, event.kind, event.subject, event.detail) for event in events
    )
    return Presentation(
        lambda: events_document(events),
        lambda: (Table("events", ("when", "who", "what", "about", "detail"), rows),) if rows else (),
        f"{count(len(events), 'event')}{'; older ones may be left out: --last' if len(events) == most else ''}",
    )


def events_document(events: Sequence[Event]) -> EventsDocument:
    """Return the JSON of events, in the given order."""
    return {"events": list(map(event_document, events))}


def event_document(event: Event) -> EventDocument:
    """Return the JSON of an event."""
    return {
        "occurred_at_ms": event.occurred_at_ms,
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
        "author": event.author,
    }
