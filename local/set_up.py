"""Create or migrate the databases of a platform: Airflow's schema, the pools, the library's schema.

The module is run as a process of its own, in the platform's environment; a second run changes nothing.
"""

import os
import sys

from airflow.utils.db import upgradedb

from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import create_missing_pools, created_sentence, suitable_slots


def main() -> int:
    upgradedb()
    slots = suitable_slots(os.cpu_count() or 1)
    print(created_sentence(create_missing_pools(slots), slots))
    with TieringHook().open() as app:
        app.set_up.migrate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
