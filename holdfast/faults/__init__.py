"""Break: faults at named moments in the life of a frame."""
