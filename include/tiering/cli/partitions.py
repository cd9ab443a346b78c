"""The partition that a command's arguments name."""

from typing import TYPE_CHECKING

from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.model.ids import TopicIdPartition


def remote_partition(app: "App", topic: str, partition: int, topic_id: str | None) -> "TopicIdPartition":
    """Raises SettingError unless exactly one partition with remote data is meant."""
    remote = [size.topic_id_partition for size in app.sizes.partition_sizes()]
    named = [p for p in remote if p.topic == topic and p.partition == partition]
    meant = [p for p in named if topic_id in (None, str(p.topic_id))]
    if len(meant) == 1:
        return meant[0]
    if not named:
        raise SettingError(f"{topic}-{partition}: nothing of it is in remote storage; ./tiering sizes lists what is")
    ids = ", ".join(str(p.topic_id) for p in named)
    raise SettingError(f"{topic}-{partition}: topics of this name have the ids {ids}: choose one with --topic-id")
