"""Run: sessions, queries, checkpoints. The only package that drives Spark."""
