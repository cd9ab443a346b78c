"""Real Kafka brokers for tests: jars from Maven (kept in `.cache/kafka`), on loopback, ended by their own pid.

    from tests.doubles.kafka_lab.cluster import kafka_cluster, wait_until
    from tests.doubles.kafka_lab.consume import both_digests
    from tests.doubles.kafka_lab.produce import mixed_records, running_producers
    from tests.doubles.kafka_lab.broker import require_kafka

    def test_something(tmp_path: Path) -> None:
        require_kafka()                 # skips with the reason where Java or Maven is missing; fetches the jars once
        with kafka_cluster(tmp_path / "kafka", remote_dir=tmp_path / "remote") as cluster:  # 7 s; 4.3.1, one broker
            topic_id = cluster.create_topic("orders", partitions=2)         # segments of 64 KiB, kept for ever
            mixed_records(cluster.bootstrap, "orders", [0, 1])              # all codecs, all kinds of writer, aborts
            cluster.restart()                                               # 6 s; leader epochs rise
            before = both_digests(cluster.bootstrap, "orders", 0)           # plain and read_committed
            ...
            cluster.alter_topic("orders", remote_storage_enable="true", local_retention_bytes="1")
            wait_until(lambda: len(cluster.local_segments("orders", 0)) == 1, "closed segments left the disk")
            assert both_digests(cluster.bootstrap, "orders", 0) == before
            assert not cluster.errors()

- `cluster.bootstrap`, `.cluster_id`, `.admin` (confluent-kafka), `.brokers[n]` with `.log_dir`, `.pid`, `.stop()`,
  `.kill()` (-9), `.start()`, `.restart()`, `.errors()`, `.lines(regex)`.
- `kafka_cluster(..., version="3.9.2", brokers=2, config={...}, jmx=True)`; without `remote_dir` no tiered storage.
- `cluster.stored` is the `kafka-tiered-storage` below `remote_dir`; `cluster.remote_segments(topic, partition)`.
- `produce.Writer`: one producer (codec, plain, idempotent, transactional, a transaction left open by `begin`).
- `serde_check.evaluate(values)` asks Kafka's own serde of `__remote_log_metadata`; `requests.move(...)` moves replicas.

Every wait has a deadline of 240 or 300 s. A broker takes 400 to 500 MB and a few seconds of two cores to start: give a
module of tests one cluster (a module fixture), and each test topics of its own.
"""
