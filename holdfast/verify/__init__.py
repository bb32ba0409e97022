"""Compare a faulty run with the ideal one and report it."""
