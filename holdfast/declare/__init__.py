"""Declare: the object users hold, and how a file of theirs is loaded. It may reach what runs and checks."""
