"""The one authority on who uses a QPU: a pure queue core, and what carries out its decisions."""
