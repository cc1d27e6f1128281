"""A modelled cluster in virtual time: the code that runs elsewhere, with a clock that jumps."""
