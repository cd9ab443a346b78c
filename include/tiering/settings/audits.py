"""Settings of audits."""

from typing import Final

from include.tiering.settings.section import MOST_LONG, DynamicSection, Loosens, operational

_DAY_MS: Final = 24 * 60 * 60 * 1000


class AuditSettings(DynamicSection):
    """What audits leave alone."""

    prefix = "tiering.audit"

    min_age_ms: int = operational(
        _DAY_MS,
        "Objects without metadata and open uploads that are younger are neither reported nor removed by an audit; a "
        "complete copy is reported at any age. A second line only: a copy under way is known by its metadata, whatever "
        "its age.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )
