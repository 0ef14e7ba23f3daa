"""Options for the JVMs of Spark that tests start. They live for seconds, and cost a third less with these."""

from calving.engine.spark import LOCAL_JAVA

SPARK = {f"spark.{part}.extraJavaOptions": LOCAL_JAVA for part in ("driver", "executor")}
