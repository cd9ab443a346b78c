"""What is published stays: nothing of a topic is before its handover has looked at everything for the last time."""

from include.tiering.errors import PublicationRefusedError
from include.tiering.handover.handover import HandoverStep, is_before
from include.tiering.handover.handover_contract import HandoverStore
from include.tiering.kafka.cluster.contract import TopicFacts


def require_publishable(handovers: HandoverStore, topic: TopicFacts) -> None:
    """Raises PublicationRefusedError while a handover of the topic is before its publication."""
    handover = handovers.latest(topic.topic_id)
    if handover is None or handover.state.has_ended or not is_before(handover.step, HandoverStep.PUBLISH):
        return
    raise PublicationRefusedError(
        f"the hand-over of {topic.topic} is at {handover.step} ({handover.state}), and publishes behind"
        f" {HandoverStep.RECHECK}: ./tiering handover {topic.topic} --resume"
    )
