"""Declare: stream processes, their promises and protections, and the rules they must keep. Pure."""
