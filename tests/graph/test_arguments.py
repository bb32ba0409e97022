"""Whether a function may change what it is handed: never missed where it does, and seldom feared where it does not."""

from __future__ import annotations

import functools

import pytest

from holdfast.graph.arguments import may_change


def appends(t):
    t.append(1)


def sets_an_item(t):
    t[0] = 1


def deletes(t):
    del t[0]


def grows(t):
    t += [1]
    return t


def by_another_name(t):
    x = t
    x.append(1)


def by_a_late_name(t):
    for _ in range(2):
        if len(t) > 3:
            x.append(1)
        x = t


def inside(t):
    for each in t:
        each.append(1)


def in_a_pair(t):
    one, two = t, 1
    one.clear()
    return two


def in_a_comprehension(t):
    return [each.pop() for each in t]


def in_a_list(t):
    box = [t]
    box[0].append(1)


def hands_on(t):
    helper(t)


def helper(t):
    t.append(1)


def by_keyword(t):
    helper(t=t)


def by_a_method(t):
    list.append(t, 1)


def has_an_inner_function(t):
    def inner():
        t.append(1)

    inner()


def of_its_rest(*t):
    t[0].append(1)


def by_walrus(t):
    (x := t).append(1)
    x.append(2)


class Caller:
    def __call__(self, t):
        t.append(1)


MAY = [
    appends, sets_an_item, deletes, grows, by_another_name, by_a_late_name, inside, in_a_pair, in_a_comprehension, in_a_list, hands_on,
    by_keyword, by_a_method, has_an_inner_function, of_its_rest, by_walrus, Caller(), functools.partial(appends), lambda t: t.append(1),
]  # fmt: skip


def adds(t, u):
    total = sum(t) + u
    return total * 2


def reads(t):
    return [each + 1 for each in t if each > 0] + list(reversed(t))


def asks(t):
    return t.get("a", 0) if t is not None else len(t)


def spells(t):
    return f"{t.upper()}-{t[0]}" + str(t)


NEVER = [adds, reads, asks, spells, lambda t: t + 1]


@pytest.mark.parametrize("function", MAY, ids=lambda each: getattr(each, "__name__", type(each).__name__))
def test_what_may_be_changed_is_seen(function):
    assert may_change(function)


@pytest.mark.parametrize("function", NEVER, ids=lambda each: each.__name__)
def test_what_only_looks_is_left_alone(function):
    assert not may_change(function)
