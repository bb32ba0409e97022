"""What a disk holds after the power went: a recorded run, and images of any moment of it."""
