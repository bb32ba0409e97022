"""One query: the plan of a frame, its workers, its seal and its commit. The package that works with Spark."""
