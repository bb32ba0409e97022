"""The part of `check` that needs a JVM: types, determinism, what Spark would refuse."""
