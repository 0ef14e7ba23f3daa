"""Options for the JVMs that tests start."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""A JVM that lives for seconds spends less on code that is optimised little: a third of the CPU time of a test on a cluster."""
SPARK = {f"spark.{part}.extraJavaOptions": SHORT_LIVED for part in ("driver", "executor")}
