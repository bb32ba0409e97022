"""Studies of speed and size. `make bench-NAME` runs one and ends with one JSON line."""
