"""Read: re-readable input from the outside world, cut into frames by reference."""
