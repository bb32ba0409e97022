"""Checkpoints of a run: what is pinned, packed, shipped and acknowledged. No Spark."""
