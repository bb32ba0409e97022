"""What users do with a process, without Spark."""
