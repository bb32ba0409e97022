"""Predict: dependability of a stream process from a model of it; model -> solver -> result."""
