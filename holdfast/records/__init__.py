"""Remember: what happened, in one place."""
