"""`./tiering pools`: Airflow's pools, whose sizes are those of Kafka's thread pools."""

import typer

from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def pools(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the pools that batches run in: slots, tasks that run, tasks that wait for a slot or a worker, live batches.

    Airflow is the truth of a pool's size. Where it cannot be asked (airflow.url, airflow.login_file), sizes are those
    that somebody saw last. Resize a pool in Airflow, or here:

    * `./tiering configs --alter --entity-type brokers --entity-default --add-config
      remote.log.manager.copier.thread.pool.size=4`; 0 is a pause.
    """
    with session_of(ctx).opened() as app:
        status = app.configs.pools_status()
    from include.tiering.configs.report import present_pools

    finish(present_pools(status), as_json=as_json)
