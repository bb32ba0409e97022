"""What a stochastic activity network consists of, and how networks are composed by shared places.

A *place* holds tokens (0, 1, 2, ...). An *activity* takes tokens and gives tokens. It is enabled
in a marking if every place it `takes` from has enough and its input gate's predicate `when` is
true. A *timed* activity completes after a delay, an *instantaneous* one at once. A completion

1. chooses a case by the cases' probabilities in the marking as it is, before anything is taken,
2. takes the tokens of `takes`, then runs the input gate's function `then`,
3. gives the tokens of the chosen case's `gives`, then runs its output gate, the case's `then`.

Gates are functions of the marking: `m["queue"]` reads, `m["queue"] = 0` writes (in `then` only).

What a timed activity's delay means, exactly. Only stable markings count: those in which no
instantaneous activity is enabled. An activity disabled and enabled again on the way from one
stable marking to the next was not interrupted.
- It draws its delay from `delay` (a distribution, or a function of the marking that returns one)
  in the first stable marking that enables it, and again after each of its completions.
- While it stays enabled the clock runs. If the function returns another distribution in a later
  marking, an exponential activity draws again (exact, as it has no memory, and what the Markov
  chain does); any other keeps its draw, or draws again with `changed="resample"`.
- `reactivate` is a predicate: an enabled activity draws again in every stable marking in which it
  is true, after each completion of a timed activity.
- When it is disabled, the draw is forgotten; with `disabled="resume"` the time that was left
  is what it needs when it is next enabled.
- Activities due at one moment complete in the order in which they were declared, each only if
  it is still enabled then.

Among enabled instantaneous activities those with the highest `priority` go first; among several
of one priority each goes with probability proportional to its `weight`.

Composition: `Network.add` puts a copy of a part into a network under a prefix; places named in
`share` are places of the whole instead. Gates of the part keep speaking of its own places by
their own names. `join` and `replicate` are the usual two uses of it.

Mistakes that can be seen in a declaration are refused in that line (HF-N001, HF-N003, HF-N007).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from holdfast.errors import UsageError
from holdfast.models.san.distributions import Distribution, refused

__all__ = ["Activity", "Case", "Network", "Tokens", "join", "replicate", "unknown_place"]

# How places with a number of tokens may be written: "queue", ["queue", "server"], {"queue": 2}.
Tokens = str | Iterable[str] | Mapping[str, int]
Delay = Distribution | Callable[[Any], Distribution]
# Probabilities come from decimal fractions: 0.1 + 0.2 + 0.7 is not 1.0 to the last bit.
ADDS_UP = 1e-9


@dataclass(frozen=True, slots=True)
class Case:
    """One of the ways in which an activity ends. `probability` may be a function of the marking."""

    probability: float | Callable[[Any], float] = 1.0
    gives: Tokens = ()
    then: Callable[[Any], None] | None = None

    def tokens(self) -> Mapping[str, int]:
        """What it gives by place; of a case that belongs to a network."""
        return cast("Mapping[str, int]", self.gives)


@dataclass(frozen=True)
class Activity:
    """As declared. `delay` is None for an instantaneous one. `scope`: what its gates call a place -> its name."""

    name: str
    delay: Delay | None
    takes: Mapping[str, int]
    when: Callable[[Any], bool] | None
    then: Callable[[Any], None] | None
    cases: tuple[Case, ...]
    changed: str = "keep"
    disabled: str = "forget"
    reactivate: Callable[[Any], bool] | None = None
    priority: int = 0
    weight: float | Callable[[Any], float] = 1.0
    scope: Mapping[str, str] | None = field(default=None, repr=False)


def unknown_place(name: str, there: Iterable[str], where: str) -> UsageError:
    near = difflib.get_close_matches(str(name), list(there), n=1, cutoff=0.5)
    return UsageError(
        "HF-N001",
        "UnknownPlace",
        f"there is no place {name!r}.",
        where=where,
        why=f"places are: {', '.join(sorted(there)) or 'none'}",
        effect="nothing was solved",
        do=f"did you mean {near[0]!r}?" if near else f"declare it first: net.place({name!r})",
    )


def taken(what: str, why: str, do: str) -> UsageError:
    return UsageError("HF-N007", "NameTaken", what, why=why, effect="the network is as it was", do=do)


class Network:
    """Places and activities. Declare places before the activities that use them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[str, int] = {}
        self.activities: dict[str, Activity] = {}

    def place(self, name: str, tokens: int = 0) -> str:
        """A place that holds `tokens` at the start. Returns its name."""
        if name in self.places:
            raise taken(
                f"network {self.name!r} has a place {name!r} already.",
                f"it holds {self.places[name]}",
                "give this place another name, or share the first one",
            )
        if tokens != int(tokens) or tokens < 0:
            raise UsageError(
                "HF-N002",
                "NegativeMarking",
                f"place {name!r} would start with {tokens!r} tokens.",
                where=f"network {self.name!r}",
                why="tokens are counted: 0, 1, 2, ...",
                effect="the place was not added",
                do="start it with 0 or more",
            )
        self.places[name] = int(tokens)
        return name

    def timed(
        self,
        name: str,
        delay: Delay,
        *,
        takes: Tokens = (),
        gives: Tokens = (),
        cases: Iterable[Case] = (),
        when: Callable[[Any], bool] | None = None,
        then: Callable[[Any], None] | None = None,
        changed: str = "keep",
        disabled: str = "forget",
        reactivate: Callable[[Any], bool] | None = None,
    ) -> str:
        """An activity that takes time. `gives` is short for a single case."""
        if not (callable(delay) or hasattr(delay, "draw")):
            raise refused(
                f"activity {name!r} has the delay {delay!r}.",
                "a delay is a distribution or a function that returns one",
                f"write Exponential({delay!r}) or Deterministic({delay!r})",
            )
        for word, value, known in (
            ("changed", changed, ("keep", "resample")),
            ("disabled", disabled, ("forget", "resume")),
        ):
            if value not in known:
                raise refused(
                    f"activity {name!r} has {word}={value!r}.",
                    f"it is one of {', '.join(known)}",
                    f"write {word}={known[0]!r}",
                )
        return self._declare(
            Activity(name, delay, {}, when, then, (), changed, disabled, reactivate), takes, gives, cases
        )

    def instant(
        self,
        name: str,
        *,
        takes: Tokens = (),
        gives: Tokens = (),
        cases: Iterable[Case] = (),
        when: Callable[[Any], bool] | None = None,
        then: Callable[[Any], None] | None = None,
        priority: int = 0,
        weight: float | Callable[[Any], float] = 1.0,
    ) -> str:
        """An activity that completes as soon as it is enabled."""
        if not callable(weight) and not weight > 0:
            raise refused(
                f"activity {name!r} has the weight {weight!r}.",
                "a weight is above 0",
                "leave it out, or disable it with `when=`",
            )
        made = Activity(name, None, {}, when, then, (), priority=priority, weight=weight)
        return self._declare(made, takes, gives, cases)

    def add(self, part: Network, prefix: str, share: Iterable[str] | Mapping[str, str] = ()) -> None:
        """A copy of `part`: its place p becomes `prefix.p`, or a place of this network if it is shared.

        `share` names places of the part, or maps them to places of this network. A shared
        place that is not here yet is made; one that is has to start with as many tokens.
        """
        shared = dict(share) if isinstance(share, Mapping) else {name: name for name in share}
        for name, outer in shared.items():
            if name not in part.places:
                raise unknown_place(name, part.places, f"share of part {part.name!r}")
            if not isinstance(outer, str):  # part.places, say, which maps names to tokens
                raise unknown_place(outer, self.places, f"share of part {part.name!r}, place {name!r}")
        names = {name: shared.get(name, f"{prefix}.{name}") for name in part.places}
        for name, tokens in part.places.items():
            outer = names[name]
            if name in shared and outer in self.places:
                if self.places[outer] != tokens:
                    raise taken(
                        f"shared place {outer!r} would start with two markings.",
                        f"{self.places[outer]} in network {self.name!r}, {tokens} in part {part.name!r}",
                        "let all parts start it with the same number of tokens",
                    )
            else:
                self.place(outer, tokens)
        for activity in part.activities.values():
            inner = activity.scope or {name: name for name in part.places}
            self._keep(
                replace(
                    activity,
                    name=f"{prefix}.{activity.name}",
                    takes={names[place]: n for place, n in activity.takes.items()},
                    cases=tuple(
                        replace(case, gives={names[p]: n for p, n in case.tokens().items()}) for case in activity.cases
                    ),
                    scope={local: names[place] for local, place in inner.items()},
                )
            )

    def _declare(self, activity: Activity, takes: Tokens, gives: Tokens, cases: Iterable[Case]) -> str:
        where = f"activity {activity.name!r} of network {self.name!r}"
        found = tuple(cases)
        if found and gives:
            raise UsageError(
                "HF-N003",
                "CasesDoNotAddUp",
                f"{where} has cases and `gives`.",
                why="`gives` is short for one case",
                effect="the activity was not added",
                do="put the tokens into the cases",
            )
        found = found or (Case(1.0, gives),)
        constant = [case.probability for case in found if not callable(case.probability)]
        if len(constant) == len(found):
            check_cases(constant, where)
        self._keep(
            replace(
                activity,
                takes=self._arcs(takes, where),
                cases=tuple(replace(case, gives=self._arcs(case.gives, where)) for case in found),
            )
        )
        return activity.name

    def _keep(self, activity: Activity) -> None:
        if activity.name in self.activities:
            raise taken(
                f"network {self.name!r} has an activity {activity.name!r} already.",
                "an activity is known by its name",
                "give this one another name",
            )
        self.activities[activity.name] = activity

    def _arcs(self, tokens: Tokens, where: str) -> dict[str, int]:
        if isinstance(tokens, str):
            tokens = (tokens,)
        arcs: dict[str, int] = {}
        for name, n in tokens.items() if isinstance(tokens, Mapping) else ((each, 1) for each in tokens):
            if name not in self.places:
                raise unknown_place(name, self.places, where)
            if n != int(n) or n < 0:
                raise UsageError(
                    "HF-N002",
                    "NegativeMarking",
                    f"{n!r} tokens of place {name!r} would be moved.",
                    where=where,
                    why="tokens are counted: 0, 1, 2, ...",
                    effect="the activity was not added",
                    do="name the place in `takes` to take, in `gives` to give",
                )
            arcs[name] = arcs.get(name, 0) + int(n)
        return arcs


def check_cases(probabilities: list[float], where: str) -> None:
    """Each at least 0, together 1."""
    total = sum(probabilities)
    if not all(p >= 0 for p in probabilities) or not abs(total - 1) <= ADDS_UP:
        raise UsageError(
            "HF-N003",
            "CasesDoNotAddUp",
            f"the cases' probabilities are {', '.join(f'{p:g}' for p in probabilities)}: together {total:.12g}.",
            where=where,
            why="each is 0 or more and together they are 1",
            effect="nothing was solved",
            do="correct them; what is left over may be a case that gives nothing",
        )


def join(name: str, share: Iterable[str] = (), **parts: Network) -> Network:
    """One network of several: `join("pair", share=["host"], left=a, right=b)`. Others' places get the part's name."""
    whole = Network(name)
    shared = list(share)
    for place in shared:
        if not any(place in part.places for part in parts.values()):
            raise unknown_place(
                place, {p for part in parts.values() for p in part.places}, f"share of network {name!r}"
            )
    for prefix, part in parts.items():
        whole.add(part, prefix, [place for place in shared if place in part.places])
    return whole


def replicate(name: str, part: Network, copies: int, share: Iterable[str] = ()) -> Network:
    """`copies` of one part that share some places; place p of the second is `part[1].p` (by the part's name)."""
    whole = Network(name)
    for i in range(copies):
        whole.add(part, f"{part.name}[{i}]", share)
    return whole
