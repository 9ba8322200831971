"""A client of Spark Connect: reads and writes topics, in a batch and in a stream, as a program on another machine does.

Arguments: the server's address, bootstrap, a folder for the checkpoint. Prints what it has read, as JSON.
"""

import json
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(remote: str, bootstrap: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    broker = {"kafka.bootstrap.servers": bootstrap}

    def read(topic: str) -> list[str]:
        frame = spark.read.format("ottla").options(**broker, subscribe=topic).load()
        return sorted(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())

    def upper(frame: "DataFrame") -> "DataFrame":
        return frame.selectExpr("key", "upper(CAST(value AS STRING)) AS value")

    batch = upper(spark.read.format("ottla").options(**broker, subscribe="in").load())
    batch.write.format("ottla").options(**broker, topic="batch").mode("append").save()
    for _ in range(2):  # the second finds nothing new
        stream = spark.readStream.format("ottla").options(**broker, subscribe="in", startingOffsets="earliest").load()
        writer = upper(stream).writeStream.format("ottla").options(**broker, topic="stream")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    print(json.dumps({topic: read(topic) for topic in ("in", "batch", "stream")}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
