"""A driver that copies the topic `in` to the topic `out`, batch by batch, and ends when it has all.

Arguments: bootstrap, folder of the checkpoint, master. Meant to be killed at any moment and started again.
"""

import sys

from ottla.pipelines.session import spark_session

CONFIGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main(bootstrap: str, checkpoint: str, master: str) -> None:
    spark = spark_session(master, name="copy", configs=CONFIGS)
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="40").load()
    writer = frame.select("key", "value").writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.options(topic="out", checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
