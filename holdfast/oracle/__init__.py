"""Frames of a finished run computed a second time, another way, in a session of their own.

Nothing here is built by `engine.unit.plan`, and nothing is executed for two frames: a frame's inputs are read from
where they are stored, put into plain DataFrames, and the user's function is called on these. So an error in the
engine does not show here in the same way. Driven by `holdfast verify`.
"""
