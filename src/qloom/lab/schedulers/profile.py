"""How much of a resource is free from now on, if everybody takes as long as their time limit says."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from qloom.lab.schedulers.state import Entry, Resource, State

Part = tuple["Profile", int]  # of which a job wants so much


class Profile:
    """What is free of a resource, from each of `times_us` until the next."""

    __slots__ = ("free", "times_us")

    def __init__(self, resource: Resource, now_us: int) -> None:
        self.times_us = [now_us]
        self.free = [resource.free]
        for end_us, _order, amount in resource.ends:
            end_us = max(end_us, now_us + 1)  # who is late holds it still
            if end_us != self.times_us[-1]:
                self.times_us.append(end_us)
                self.free.append(self.free[-1])
            self.free[-1] += amount

    def too_little_until(self, amount: int, begin_us: int, end_us: int) -> int | None:
        """The end of the first stretch with less than `amount`; None if there is none, -1 if it has no end."""
        for place in range(bisect_right(self.times_us, begin_us) - 1, bisect_left(self.times_us, end_us)):
            if self.free[place] < amount:
                return self.times_us[place + 1] if place + 1 < len(self.times_us) else -1
        return None

    def least(self, begin_us: int, end_us: int) -> int:
        """The least that is free in a stretch of time."""
        first, last = bisect_right(self.times_us, begin_us) - 1, bisect_left(self.times_us, end_us)
        return min(self.free[first:last])

    def take(self, begin_us: int, end_us: int, amount: int) -> None:
        """Less is free from here to there; a negative amount gives back what was taken."""
        times_us, free = self.times_us, self.free
        for time_us in (begin_us, end_us):
            place = bisect_left(times_us, time_us)
            if place == len(times_us) or times_us[place] != time_us:
                times_us.insert(place, time_us)
                free.insert(place, free[place - 1])
        for place in range(bisect_left(times_us, begin_us), bisect_left(times_us, end_us)):
            free[place] -= amount


def profiles_of(state: State) -> list[Profile]:
    """The profile of each resource, by its index."""
    return [Profile(resource, state.now_us) for resource in state.resources.values()]


def parts_of(entry: Entry, profiles: list[Profile]) -> list[Part]:
    """What a job wants, of which profile."""
    wanted = zip(entry.line.resources, entry.amounts, strict=True)
    return [(profiles[resource.index], amount) for resource, amount in wanted]


def earliest_us(parts: list[Part], limit_us: int, at_us: int, step_us: int = 1) -> int | None:
    """When a job fits for its whole limit, from `at_us` on, at a multiple of `step_us`; None if it never does."""
    while True:
        at_us += -at_us % step_us
        for profile, amount in parts:
            later_us = profile.too_little_until(amount, at_us, at_us + limit_us)
            if later_us == -1:
                return None
            if later_us is not None:
                at_us = later_us
                break
        else:
            return at_us


def take(parts: list[Part], at_us: int, limit_us: int, amounts: tuple[int, ...] | None = None) -> None:
    """Put a job into the profiles, perhaps with more than it asks for."""
    for place, (profile, amount) in enumerate(parts):
        profile.take(at_us, at_us + limit_us, amount if amounts is None else amounts[place])


def give_back(parts: list[Part], at_us: int, limit_us: int) -> None:
    """Take a job out of the profiles."""
    for profile, amount in parts:
        profile.take(at_us, at_us + limit_us, -amount)


def most_amounts(entry: Entry, parts: list[Part], now_us: int) -> tuple[int, ...]:
    """An expander takes up to `most_nodes`, as far as they are free for its whole time."""
    if entry.most_nodes <= entry.amounts[0]:
        return entry.amounts
    return (min(entry.most_nodes, parts[0][0].least(now_us, now_us + entry.limit_us)), *entry.amounts[1:])
