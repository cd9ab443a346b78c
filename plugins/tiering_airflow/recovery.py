"""The task of `tiering_recovery_drill`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow.sdk import BaseOperator

from include.tiering.errors import SettingError
from include.tiering.presentation import as_text
from plugins.tiering_airflow.errors import DrillFailedError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.shared import author

if TYPE_CHECKING:
    from airflow.sdk import Context

DRILL_TASK_ID: Final = "drill"
KAFKA_HOME: Final = "KAFKA_HOME"
"""Variable of the worker that names a Kafka distribution; without it Maven fetches one."""


class RecoveryDrillOperator(BaseOperator):
    """Recovers a topic from the store alone on a throw-away broker; without a topic, the one that waits longest."""

    def execute(self, context: "Context") -> dict[str, str | int]:
        """Run the task. Raises TieringError; DrillFailedError if something of the topic cannot be recovered."""
        from include.tiering.app.recovery import drill, topic_that_waits
        from include.tiering.broker_process.kafka_home import java, kafka_by_maven, kafka_in
        from include.tiering.recovery.drill import present_drill

        with TieringHook().open() as app:
            topic = context["params"]["topic"] or topic_that_waits(app)
            if topic is None:
                raise SettingError("nothing is in remote storage yet, so there is no topic to recover")
            java()
            home = os.environ.get(KAFKA_HOME)
            kafka = kafka_by_maven(os.environ) if not home else kafka_in(Path(home))
            report = drill(
                app, topic, kafka, author=author(context["dag_run"]), say=lambda line: self.log.info("%s", line)
            )
        presentation = present_drill(report)
        for line in as_text(presentation).splitlines():
            self.log.info("%s", line)
        if not presentation.ok:
            raise DrillFailedError(presentation.summary)
        return {"topic": topic, "records": report.records}
