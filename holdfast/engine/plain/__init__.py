"""For plain Structured Streaming jobs: restarted when they die, or moved here."""
