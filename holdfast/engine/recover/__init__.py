"""After a death: attempts, restoring, what is skipped as LOST. No Spark."""
