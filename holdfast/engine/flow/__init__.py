"""Who may move: queues and permits, sources and sinks in operation, parameters, promises. No Spark."""
