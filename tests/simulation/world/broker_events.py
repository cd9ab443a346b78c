"""What brokers do by themselves: produce, roll, elect, lag, truncate, delete, move, lose."""

from tests.simulation.invariants.rows import STARTED
from tests.simulation.world.brokers import PartitionLog, Transaction
from tests.simulation.world.event_source import EventSource


class BrokerEvents(EventSource):
    """Of all brokers of one world."""

    def produce(self) -> None:
        log = self._log()
        if log is not None and log.leading is not None:
            log.produce(1 + self._choices.number(6))
            if self._choices.number(4) != 1:
                log.replicate()
            if self._choices.number(3) != 1:
                for replica in log.replicas.values():
                    log.checkpoint(replica)
            self._tell("records are produced", log.partition, f"up to {log.leading.end}")

    def checkpoint(self) -> None:
        log = self._log()
        if log is not None:
            log.replicate()
            for replica in log.replicas.values():
                log.checkpoint(replica)
            self._tell("checkpoints are written", log.partition)

    def elect(self) -> None:
        log = self._log()
        others = [] if log is None else [one for one in log.isr if one != log.leader]
        if log is not None and others:
            log.elect(others[self._choices.number(len(others))], clean=True)
            self._after_election(log, "a clean election")

    def elect_unclean(self) -> None:
        """Of whichever broker comes back first, with less than it had, often the old leader. Producers may send again
        what was lost."""
        log = self._log()
        if log is not None:
            drawn = log.brokers[self._choices.number(len(log.brokers))]
            new = log.replicas[log.leader if self._choices.number(2) == 1 else drawn]
            before = log.high_watermark
            log.truncate(new, max(new.log_start, new.files[0].base_offset, new.end - self._choices.number(11)))
            lost = max(0, before - new.end)
            log.elect(new.broker_id, clean=False)
            log.unclean = True
            again = lost if self._choices.number(2) == 1 else 0
            log.produce(again + self._choices.number(4) * 5)
            if self._choices.number(2) == 1:
                log.checkpoint(new)
            self._after_election(log, "an unclean election")

    def abandoned_copy_is_replaced(self) -> None:
        """A worker is killed when all its objects are sent, and an unclean election replaces records of that copy:
        under the same offsets the source has others then, in a segment that begins where that one did."""
        world = self._world
        whole = [
            row
            for row in world.watch.rows.known.values()
            if row.state == STARTED and row.end_offset > row.start_offset and world.watch.rows.is_right(row)
        ]
        row = whole[self._choices.number(len(whole))] if whole else None
        log = None if row is None else world.cluster.logs.get(row.topic_id_partition)
        if row is None or log is None or log.leading is None or row.end_offset >= log.leading.end:
            return
        for process in world.alive("copier"):
            world.scheduler.kill(process)
        first = row.start_offset + 1 + self._choices.number(row.end_offset - row.start_offset)
        new = log.leading
        log.truncate(new, max(new.log_start, new.files[0].base_offset, first))
        log.elect(new.broker_id, clean=False)
        log.unclean = True
        log.produce(row.end_offset + 1 - new.end)
        log.roll(new)
        log.produce(1)
        log.replicate()
        for replica in log.replicas.values():
            log.checkpoint(replica)
        self._tell("an unclean election replaces what an abandoned copy holds", log.partition, f"from {first} on")

    def _after_election(self, log: PartitionLog, what: str) -> None:
        """The old leader follows at once, or stays away."""
        if self._choices.number(2) == 0:
            for broker in log.brokers:
                if broker != log.leader:
                    log.follow(log.replicas[broker])
                    if broker not in log.isr:
                        log.isr.append(broker)
            log.advance_high_watermark()
        self._tell(what, log.partition, f"leader {log.leader}, epoch {log.leader_epoch}")

    def lag(self) -> None:
        log = self._log()
        others = [] if log is None else [one for one in log.isr if one != log.leader]
        if log is not None and others:
            log.isr.remove(others[self._choices.number(len(others))])
            log.advance_high_watermark()
            self._tell("a follower falls behind", log.partition)

    def local_retention(self) -> None:
        log = self._log()
        leader = None if log is None else log.leading
        if log is not None and leader is not None and len(leader.files) > 1 and not self._keeps_all(log):
            offset = leader.files[1 + self._choices.number(len(leader.files) - 1)].base_offset
            if offset <= log.high_watermark and self._may_go(log, offset):
                for replica in log.replicas.values():
                    log.raise_log_start(replica, min(offset, replica.end))
                self._tell("the broker's retention deletes", log.partition, f"below {offset}")

    def delete_records_locally(self) -> None:
        log = self._log()
        leader = None if log is None else log.leading
        if log is not None and leader is not None and log.high_watermark > leader.log_start:
            offset = leader.log_start + 1 + self._choices.number(log.high_watermark - leader.log_start)
            if self._may_go(log, offset):
                for replica in log.replicas.values():
                    log.raise_log_start(replica, min(offset, replica.end))
                self._world.watch.promises.released(log)
                self._tell("kafka-delete-records", log.partition, f"below {offset}")

    def _may_go(self, log: PartitionLog, offset: int) -> bool:
        """What was not copied yet goes seldom: behind the hole that it leaves a partition waits for a person."""
        return offset <= self._world.watch.highest_copied(log.partition) + 1 or self._choices.number(5) == 1

    def move(self) -> None:
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            replica.directory_id += "'"
            for place, file in enumerate(replica.files):
                copy = type(file)(self._world.cluster.next_inode(), file.base_offset, list(file.records))
                copy.modified, copy.end_without_records = self._world.cluster.tick(), file.end_without_records
                replica.files[place] = copy
            self._tell("a replica is moved to another directory", log.partition, f"on {replica.broker_id}")

    def roll(self) -> None:
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            log.roll(replica)
            self._tell("a segment is rolled", log.partition, f"on {replica.broker_id}")

    def transaction(self) -> None:
        log = self._log()
        if log is None or log.leading is None:
            return
        open_ones = [one for one in log.transactions if one.last is None]
        log.produce(1)
        if open_ones:
            open_ones[0].last = (log.leader_epoch, log.leading.end - 1)
            self._tell("a transaction ends", log.partition)
        else:
            log.transactions.append(Transaction((log.leader_epoch, log.leading.end - 1)))
            self._tell("a transaction begins", log.partition, f"at {log.leading.end - 1}")
        log.replicate()

    def delete_topic(self) -> None:
        """Sometimes created again at once, under its name."""
        topics = list(self._world.cluster.names)
        if not topics or len(self._world.cluster.removed) > 2:
            return
        topic_id = topics[self._choices.number(len(topics))]
        name = self._world.cluster.names[topic_id]
        self._world.cluster.delete_topic(topic_id)
        self._tell("a topic is deleted", name)
        if self._choices.number(2) == 1:
            self._runs.create_topic(name)
            self._tell("a topic is created again", name)

    def broker_tiers(self) -> None:
        topics = list(self._world.cluster.names)
        if topics:
            topic_id = topics[self._choices.number(len(topics))]
            configs = self._world.cluster.configs[topic_id]
            if configs.get("remote.storage.enable") != "true":
                configs["remote.storage.enable"] = "true"
                self._tell("remote.storage.enable is set", self._world.cluster.names[topic_id])

    def broker_copies(self) -> None:
        """A broker that tiers a topic writes into the same bucket, ids and keys of its own; at times it is not done."""
        tiered = [log for log in self._world.cluster.logs.values() if self._is_tiered(log)]
        if tiered:
            log = tiered[self._choices.number(len(tiered))]
            tip = log.partition
            name = f"{tip.topic}-{tip.topic_id}/{tip.partition}/{log.high_watermark:020d}-{self._world.topic_id()}"
            store, now_ms = self._world.store, self._world.scheduler.now_ms
            for suffix in ("log", "indexes", "rsm-manifest"):
                key = f"{name}.{suffix}"
                store.objects[key] = store.brokers_own[key] = b"a broker's"
                store.written_ms[key] = now_ms
            if self._choices.number(3) == 1:
                store.begin(f"{name}-next.log", None, listed=True, now_ms=now_ms)
            self._tell("a broker copies", tip, f"at {log.high_watermark}")

    def broker_expires(self) -> None:
        own = self._world.store.brokers_own
        if own:
            key = next(iter(own))
            del own[key], self._world.store.objects[key]
            self._tell("a broker expires", key)

    def _keeps_all(self, log: PartitionLog) -> bool:
        """Where topics are handed over, its retention is what its configs say, that of tiered ones another task's."""
        if not self._world.tempers.hands_over:
            return False
        configs = self._world.cluster.configs[log.partition.topic_id]
        is_unlimited = configs.get("retention.ms") == "-1" and configs.get("retention.bytes", "-1") == "-1"
        return is_unlimited or self._is_tiered(log)

    def _is_tiered(self, log: PartitionLog) -> bool:
        return self._world.cluster.configs[log.partition.topic_id].get("remote.storage.enable") == "true"

    def corrupt(self) -> None:
        log = self._log()
        if log is not None:
            replica = self._replica(log)
            file = replica.files[self._choices.number(len(replica.files))]
            file.corrupt = True
            self._tell("a file is damaged", log.partition, f"{file.base_offset} on {replica.broker_id}")

    def compaction_is_switched(self) -> None:
        """A topic's cleanup.policy is `compact` for a while."""
        topics = list(self._world.cluster.names)
        if topics:
            topic_id = topics[self._choices.number(len(topics))]
            configs = self._world.cluster.configs[topic_id]
            configs["cleanup.policy"] = "delete" if configs["cleanup.policy"] == "compact" else "compact"
            name = self._world.cluster.names[topic_id]
            self._tell("compaction is switched", name, f"to {configs['cleanup.policy']}")

    def log_cleaner_runs(self) -> None:
        """Each broker's own takes records out of rolled segments, up to where everything is stable: the first ones, the
        last ones, any of them, or all."""
        log = self._log()
        if log is None or self._world.cluster.configs[log.partition.topic_id]["cleanup.policy"] != "compact":
            return
        replica = self._replica(log)
        clean = [file for file in replica.files[:-1] if file.records and file.end <= log.last_stable_offset]
        for file in clean[: 1 + self._choices.number(3)]:
            few, how = 1 + self._choices.number(len(file.records)), self._choices.number(3)
            left = (file.records[few:], file.records[:-few], file.records[::2])[how]
            log.clean(replica, file, list(left))
        if clean:
            self._tell("a log cleaner runs", log.partition, f"on {replica.broker_id}, from {clean[0].base_offset}")

    def metadata_lags(self) -> None:
        if self._world.cluster_metadata.lags:
            self._world.cluster_metadata.thaw()
            self._tell("the metadata log catches up", "")
        else:
            self._world.cluster_metadata.freeze()
            self._tell("the metadata log lags", "")
