"""How rows reach a logged source: MQTT, lines, iterators, Spark streams."""
