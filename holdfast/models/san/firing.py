"""When an activity is enabled and what its completion does: the one place that knows, for both solvers.

A network is compiled: a marking becomes a list of token counts, places become indices, every
activity gets views of the marking through which its gates see their own names. A view notes
which places a predicate, a delay, a weight or a reward has read. Such a function depends on the marking alone,
so its answer holds until one of those places changes; nobody has to declare what it reads.

A view that is handed to a predicate cannot be written (HF-N010); one that is handed to a gate's
function refuses what is not a count (HF-N002) and places that do not exist (HF-N001).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from holdfast.errors import UsageError
from holdfast.models.san.distributions import Distribution, Exponential, refused
from holdfast.models.san.network import Activity, Network, check_cases, unknown_place

__all__ = ["Bound", "Compiled", "Marking", "loop_error"]

# Instantaneous completions in a row at one moment. A chain of them is as long as the longest way of
# a token through the network; thousands of places do not reach this, a loop always does.
INSTANTS_MAX = 100_000


class Marking:
    """The marking as one activity's predicates see it. `m["queue"]` is a number of tokens."""

    __slots__ = ("_scope", "reads", "tokens", "where")

    def __init__(self, scope: Mapping[str, int], where: str) -> None:
        self._scope, self.where = scope, where
        self.tokens: Sequence[int] = []
        self.reads: set[int] = set()

    def __getitem__(self, name: str) -> int:
        try:
            index = self._scope[name]
        except KeyError:
            raise unknown_place(name, self._scope, self.where) from None
        self.reads.add(index)
        return self.tokens[index]

    def __setitem__(self, name: str, n: int) -> None:
        raise UsageError(
            "HF-N010",
            "PredicateWrites",
            f"a predicate, delay, probability or reward writes place {name!r}.",
            where=self.where,
            why="it is asked any number of times, so it may only read",
            effect="nothing was solved",
            do="write in `then=` of the activity or of its case",
        )

    def __iter__(self):
        return iter(self._scope)


class Changing(Marking):
    """The marking as a gate's function sees it."""

    __slots__ = ("changed",)
    tokens: list[int]

    def __init__(self, scope: Mapping[str, int], where: str) -> None:
        super().__init__(scope, where)
        self.changed: list[int] = []

    def __getitem__(self, name: str) -> int:
        try:
            return self.tokens[self._scope[name]]
        except KeyError:
            raise unknown_place(name, self._scope, self.where) from None

    def __setitem__(self, name: str, n: int) -> None:
        try:
            index = self._scope[name]
        except KeyError:
            raise unknown_place(name, self._scope, self.where) from None
        if n != int(n) or n < 0:
            raise UsageError(
                "HF-N002",
                "NegativeMarking",
                f"place {name!r} would hold {n!r} tokens.",
                where=self.where,
                why=f"tokens are counted: 0, 1, 2, ...; the place holds {self.tokens[index]}",
                effect="nothing was solved",
                do="let `when=` allow the activity only where there are enough tokens",
            )
        self.tokens[index] = int(n)
        self.changed.append(index)


class Bound:
    """An activity with indices for names. All of its methods take the marking as a list."""

    def __init__(self, activity: Activity, index: Mapping[str, int], network: str) -> None:
        self.name = activity.name
        self.where = f"activity {activity.name!r} of network {network!r}"
        scope = index if activity.scope is None else {local: index[place] for local, place in activity.scope.items()}
        self.view, self.changing = Marking(scope, self.where), Changing(scope, self.where)
        self.takes = [(index[place], n) for place, n in activity.takes.items() if n]
        self.view.reads |= {place for place, _ in self.takes}
        self.when, self.then = activity.when, activity.then
        self.gives = [
            ([(index[place], n) for place, n in case.tokens().items() if n], case.then) for case in activity.cases
        ]
        self._probabilities = [case.probability for case in activity.cases]
        numbers = [p for p in self._probabilities if not callable(p)]
        self._constant = numbers if len(numbers) == len(self._probabilities) else None
        self.timed = activity.delay is not None
        # A distribution is a value; whatever else can be called is a function of the marking.
        fixed = activity.delay is None or hasattr(activity.delay, "draw")
        self.fixed = cast("Distribution | None", activity.delay if fixed else None)
        self._delay = cast("Callable[[Any], Any]", None if fixed else activity.delay)
        self.resample = activity.changed == "resample"
        self.resume = activity.disabled == "resume"
        self._reactivate = activity.reactivate
        self.reactivates = activity.reactivate is not None
        self.priority, self._weight = activity.priority, activity.weight

    def enabled(self, tokens: list[int]) -> bool:
        for place, n in self.takes:
            if tokens[place] < n:
                return False
        if self.when is None:
            return True
        self.view.tokens = tokens
        return bool(self.when(self.view))

    def delay(self, tokens: list[int]) -> Distribution:
        if self.fixed is not None:
            return self.fixed
        found = self._ask(self._delay, tokens)
        if not hasattr(found, "draw"):
            raise refused(
                f"{self.where} has the delay {found!r} in this marking.",
                "its function has to return a distribution",
                f"return Exponential({found!r})",
            )
        return found

    def rate(self, tokens: list[int]) -> float | None:
        """Of an exponential delay in this marking; None if it is not exponential."""
        found = self.delay(tokens)
        return found.rate if isinstance(found, Exponential) else None

    def starts_again(self, tokens: list[int]) -> bool:
        return bool(self._ask(self._reactivate, tokens))

    def weight(self, tokens: list[int]) -> float:
        if not callable(self._weight):
            return self._weight
        found = self._ask(self._weight, tokens)
        if not found > 0:
            raise refused(
                f"{self.where} has the weight {found!r} in this marking.",
                "a weight is above 0",
                "disable it with `when=`",
            )
        return found

    def probabilities(self, tokens: list[int]) -> list[float]:
        if self._constant is not None:
            return self._constant
        found = [self._ask(p, tokens) if callable(p) else p for p in self._probabilities]
        check_cases(found, self.where)
        return found

    def complete(self, tokens: list[int], case: int) -> list[int]:
        """Changes `tokens`; returns the places that were touched."""
        gives, after = self.gives[case]
        touched = []
        for place, n in self.takes:
            tokens[place] -= n
            touched.append(place)
        if self.then is not None:
            touched += self._run(self.then, tokens)
        for place, n in gives:
            tokens[place] += n
            touched.append(place)
        if after is not None:
            touched += self._run(after, tokens)
        return touched

    def _ask(self, function: Callable[[Any], Any], tokens: list[int]) -> Any:
        self.view.tokens = tokens
        return function(self.view)

    def _run(self, function: Callable[[Any], Any], tokens: list[int]) -> list[int]:
        self.changing.tokens, self.changing.changed = tokens, []
        function(self.changing)
        return self.changing.changed


class Compiled:
    """A network with indices for names."""

    def __init__(self, network: Network) -> None:
        self.name = network.name
        self.places = list(network.places)
        self.index = {name: i for i, name in enumerate(self.places)}
        self.start = list(network.places.values())
        bound = [Bound(activity, self.index, network.name) for activity in network.activities.values()]
        self.timed = [activity for activity in bound if activity.timed]
        self.instants = sorted((activity for activity in bound if not activity.timed), key=lambda a: -a.priority)
        self.names = set(network.activities)

    def view(self, where: str) -> Marking:
        """Of the whole marking, for rewards."""
        return Marking(self.index, where)


def loop_error(network: str, going_round: list[str], marking: str) -> UsageError:
    return UsageError(
        "HF-N004",
        "InstantaneousLoop",
        f"instantaneous activities of network {network!r} never come to an end: {', '.join(going_round)}.",
        why=f"no time passes and no stable marking is reached; last marking: {marking}",
        effect="nothing was solved",
        do="let one of them take a token that none of them gives back, or make it a timed activity",
    )
