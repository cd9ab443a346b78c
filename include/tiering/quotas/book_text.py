"""The ledger's book as JSON text, short because every process reads and writes it twice a second.

{"version": 7, "quotas": {"copy/total/": 1000000},
 "workers": {"<worker id>": [<beat>, <version>, {"copy/total/": [<share>, <wanted, null for all there is>]}]}}
"""

import json
from collections.abc import Mapping
from typing import Any

from include.tiering.errors import RemoteMetadataError
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.quotas.demand import ALL_THERE_IS
from include.tiering.quotas.scopes import Scope
from include.tiering.quotas.shares import Book, Holding, WorkerEntry


def book_to_text(book: Book) -> str:
    return json.dumps(
        {
            "version": book.quotas.version,
            "quotas": {str(scope): quota for scope, quota in book.quotas.bytes_per_second.items()},
            "workers": {
                name: [entry.beat, entry.version, _holdings_to_json(entry.holdings)]
                for name, entry in book.workers.items()
            },
        },
        separators=(",", ":"),
    )


def book_from_text(text: str) -> Book:
    """The reverse. Raises RemoteMetadataError for what no version of this platform wrote."""
    try:
        document = json.loads(text)
        quotas = {Scope.parse(scope): int(quota) for scope, quota in document["quotas"].items()}
        workers = {
            name: WorkerEntry(int(beat), int(version), _holdings_from_json(holdings))
            for name, (beat, version, holdings) in document["workers"].items()
        }
        return Book(QuotasInForce(int(document["version"]), quotas), workers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RemoteMetadataError(f"the quota ledger holds no book: {type(error).__name__}") from None


def _holdings_to_json(holdings: Mapping[Scope, Holding]) -> dict[str, Any]:
    return {
        str(scope): [round(held.share, 1), None if held.wanted == ALL_THERE_IS else round(held.wanted, 1)]
        for scope, held in holdings.items()
    }


def _holdings_from_json(document: Mapping[str, Any]) -> dict[Scope, Holding]:
    return {
        Scope.parse(scope): Holding(float(share), ALL_THERE_IS if wanted is None else float(wanted))
        for scope, (share, wanted) in document.items()
    }
