"""Frames of a finished run computed a second time, another way, in a session of their own.

Nothing here is built by `engine.unit.plan`, and nothing is executed for two frames: a frame is read
from where its inputs lie, put into plain DataFrames, and the user's function is called on these.
So what is wrong in the engine is not wrong here in the same way. Driven by `holdfast verify`.
"""
