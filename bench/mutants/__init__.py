"""Program-made mutants of `holdfast/protocols`: making them, trying them, and the reviewed list of those that change nothing.

    making      every change of one line that could change behaviour, as an edit of the source text
    trying      one mutant in a child process: the tests of tests/protocols first, then the simulator
    reviewed    equivalent.toml (argued not to change behaviour) and fixed.toml (tried by `make test`)

Driven by `bench.soak_mutants` and by tests/simulation/test_program_mutants.py.
"""

__all__: list[str] = []
