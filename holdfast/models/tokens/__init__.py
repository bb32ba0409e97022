"""A stream graph element by element: slow, with nothing averaged, and for that reason the measure of faster models.

    unfolded    copies written out: who reads whom, what a fault does to whom
    net         the graph as a stochastic activity network of parts: the rules of `models.stream`, written once more
                (its parts: `working`, `breaking`, and `shared` by both)
    elements    the same for given faults, operator by operator over whole arrays of elements (`spans`)

`net` says what is meant and follows one token at a time; `elements` follows millions. Where nothing is left to chance the
two agree to the element (`tests/models/test_tokens_of_streams.py`). Neither shares code with the fluid
model but the description of the graph.
"""

__all__: list[str] = []
