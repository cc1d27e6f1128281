"""Random numbers of a program, seeded by its job, so that a resumed program draws the same ones.

A generator for those who ask for one (`job.random`), and for synchronous programs the global state of `random` and
`numpy.random`, since optimisers draw from it. The state of whoever runs the program is put aside meanwhile.
"""

from __future__ import annotations

import random

import numpy
from numpy.random.mtrand import get_bit_generator, set_bit_generator

LARGEST = 2**32  # seeds of `numpy.random.seed` are smaller


def generator(seed: int) -> numpy.random.Generator:
    """The generator of a job."""
    return numpy.random.default_rng(seed % LARGEST)


class ProgramRandomness:
    """The global random state of one program, as `random.seed` and `numpy.random.seed` make it.

    Enter it whenever the program runs. Between its turns others may draw: tasks are computed beside a program in
    virtual time.
    """

    def __init__(self, seed: int) -> None:
        self._outside = random.getstate()
        self._state = random.Random(seed).getstate()
        self._bits = numpy.random.MT19937()
        self._bits.state = numpy.random.RandomState(seed % LARGEST).get_state(legacy=False)  # type: ignore[assignment]
        self._bits_outside = get_bit_generator()

    def __enter__(self) -> None:
        random.setstate(self._state)
        self._bits_outside = get_bit_generator()
        set_bit_generator(self._bits)

    def __exit__(self, *error: object) -> None:
        self._state = random.getstate()
        set_bit_generator(self._bits_outside)

    def close(self) -> None:
        """The program has ended: give its caller the state from before."""
        random.setstate(self._outside)
