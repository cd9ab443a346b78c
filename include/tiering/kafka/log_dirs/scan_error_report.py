"""What a scan could not read, as part of a report."""

from include.tiering.kafka.log_dirs.contract import ScanError
from include.tiering.presentation import Document, Table


def error_document(error: ScanError) -> Document:
    return {"path": error.path, "position": error.position, "error": error.error, "message": error.message}


def error_table(errors: tuple[ScanError, ...]) -> tuple[Table, ...]:
    """No table if there is no error."""
    if not errors:
        return ()
    rows = tuple((error.path, "" if error.position is None else str(error.position), error.message) for error in errors)
    return (Table("could not be read", ("path", "byte>", "message"), rows),)


def notes_member(notes: tuple[ScanError, ...]) -> Document:
    """What is wrong where nothing will be read; no member if there is nothing."""
    return {"notes": [error_document(note) for note in notes]} if notes else {}


def note_table(notes: tuple[ScanError, ...]) -> tuple[Table, ...]:
    """What is wrong where nothing will be read; no table if there is nothing."""
    if not notes:
        return ()
    rows = tuple((note.path, "" if note.position is None else str(note.position), note.message) for note in notes)
    return (Table("not needed by any copy, and damaged", ("path", "byte>", "message"), rows),)
