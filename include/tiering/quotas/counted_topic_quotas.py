"""Topic quotas whose answers also count in this process's metrics."""

from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.metrics import count_brought_in
from include.tiering.quotas.topic_meters import MeterKind
from include.tiering.quotas.topic_quota import Admission, TopicQuotaReport, TopicQuotas
from include.tiering.telemetry.recorder import PrometheusRecorder


class CountedTopicQuotas:
    """`TopicQuotas` around others."""

    def __init__(self, quotas: TopicQuotas, recorder: PrometheusRecorder) -> None:
        self._quotas = quotas
        self._recorder = recorder

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        try:
            admission = self._quotas.admit(broker_id, topic, size_bytes=size_bytes, records=records)
        except QuotaExceededError:
            refused = Admission(broker_id, topic, size_bytes, records, metered=True)
            self._count(refused, MeterKind.IO, MeterKind.THROTTLED)
            raise
        self._count(admission, MeterKind.IO)
        return admission

    def accepted(self, admission: Admission) -> None:
        self._quotas.accepted(admission)
        self._count(admission, MeterKind.ACCEPTED)

    def failed(self, admission: Admission) -> None:
        self._quotas.failed(admission)
        self._count(admission, MeterKind.ERROR)

    def report(self) -> TopicQuotaReport:
        return self._quotas.report()

    def _count(self, admission: Admission, *kinds: MeterKind) -> None:
        if admission.metered:
            for kind in kinds:
                count_brought_in(self._recorder, admission.topic, str(kind), admission.size_bytes, admission.records)
