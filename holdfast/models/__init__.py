"""Predict: what faults do to an output, and which protections keep its promises, before anything has failed.

    stream, files       a stream graph as models see it: rates, costs, state, faults, protections; model.toml
    deriving, refilling one from a process and a run of it
    layout, schedules   copies, who reads whom, what a fault takes from whom; when faults happen
    fluid, corruption   many replications at once where the flow drops
    stations, positions, marks, waiting
                        the same where it waits, as Holdfast's does
    measures, predicting, firstorder
                        shares with intervals, beside promises; what one fault costs
    options, planning, advising
                        the cheapest protections that keep all promises
    thesis              bargain discovery as the thesis measures it
    tokens              a stream graph element by element: what the fluid model is tested against
    san                 stochastic activity networks, a library of its own

A model is a value, a solver is handed its `numpy.random.Generator`, and the same model with the
same seed gives the same result.

Pure: no Spark, clock, socket or randomness of its own.
"""

__all__: list[str] = []
