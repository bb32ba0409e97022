"""One run: activation in order, running, deactivation, replay."""
