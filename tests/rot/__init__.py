"""Bytes that rot: every kind of file we write, one bit or one end at a time."""
