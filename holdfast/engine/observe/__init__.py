"""Say what a run does: status, logs, metrics, alerts. Reads and changes nothing."""
