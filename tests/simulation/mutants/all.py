"""Every mutant."""

from typing import Final

from tests.simulation.mutants.copying import COPYING
from tests.simulation.mutants.expiring import EXPIRING
from tests.simulation.mutants.following import FOLLOWING
from tests.simulation.mutants.mistaken import MISTAKEN
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.ownership import HANDING_OVER, OWNING
from tests.simulation.mutants.publishing import PUBLISHING
from tests.simulation.mutants.verifying import VERIFYING

MUTANTS: Final[tuple[Mutant, ...]] = (
    *COPYING,
    *OWNING,
    *EXPIRING,
    *VERIFYING,
    *PUBLISHING,
    *HANDING_OVER,
    *MISTAKEN,
    *FOLLOWING,
)
