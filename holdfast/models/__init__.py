"""Predict: what faults do to an output, and which protections keep its promises, before anything has failed.

    stream      a stream graph as models see it: rates, costs, state, faults, protections; model.toml
    fluid       many replications of it at once, with constant rates between two events
    tokens      the same element by element, as a network and as arrays: what the fluid model is tested against
    san         stochastic activity networks, a library of its own

A model is a value, a solver is handed its `numpy.random.Generator`, and the same model with the
same seed gives the same result.

Pure: no Spark, clock, socket or randomness of its own.
"""

__all__: list[str] = []
