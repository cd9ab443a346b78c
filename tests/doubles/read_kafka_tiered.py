"""A program for spark-submit: reads a topic through `kafka-tiered`, and prints what it got as one line of JSON."""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.kafka_tiered import FORMAT, register


def main(config: str, topic: str) -> None:
    spark = SparkSession.builder.appName("read-kafka-tiered").getOrCreate()
    try:
        register(spark)
        options = {
            "config": config,
            "subscribe": topic,
            "minPartitions": "4",
            "kafka.isolation.level": "read_committed",
        }
        frame = spark.read.format(FORMAT).options(**options).load()
        rows = frame.orderBy("partition", "offset").select("partition", "offset", f.sha2("value", 256).alias("value"))
        got = [(row.partition, row.offset, row.value) for row in rows.collect()]
        sys.stdout.write(json.dumps({"tasks": frame.rdd.getNumPartitions(), "rows": got}) + "\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
