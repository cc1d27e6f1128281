"""The names in an OpenQASM 3 text: how they are declared, and the operands and expressions that are made of them.

An operand is a range of qubits where its place is known before the circuit runs. Expressions are not computed, unless
they are constants: what they measure and which functions they call is counted.
"""

from __future__ import annotations

import math

from qloom.payloads.circuit_use import Circuit, Operand
from qloom.payloads.tokens import LARGEST, Tokens, constant

KNOWN = {"pi": math.pi, "π": math.pi, "tau": math.tau, "τ": math.tau, "euler": math.e, "ℇ": math.e}


class Names:
    """Registers, values and functions by name, as the statements so far have declared them."""

    def __init__(self, tokens: Tokens, found: Circuit) -> None:
        self._tokens = tokens
        self._found = found
        self.functions: dict[str, int] = {}  # name -> how many operations a call stands for
        self.constants: dict[str, int | float] = dict(KNOWN)
        self.scopes: list[dict[str, tuple[str, int]]] = [{}]  # name -> what it is, and its size
        self.first_qubits: dict[str, int] = {}  # register -> the number of its first qubit
        self.in_definition = 0  # what is done there is done to whatever a call names
        self._place: Operand = None  # of the operand that was read last

    # Declarations; each returns how many operations it stands for

    def declare_register(self) -> int:
        """A register of qubits or bits, with its size before or after its name."""
        tokens = self._tokens
        word = tokens.take()
        old = word in ("qreg", "creg")
        size = None if old else self._size(word)
        name = tokens.name()
        number = self._size(name) if old else size
        kind = "qubit" if word in ("qubit", "qreg") else "bit"
        if kind == "qubit":
            if len(self.scopes) > 1:
                raise tokens.error("qubits can only be declared outside of blocks")
            if name in self.scopes[0]:
                raise tokens.error(f"{name} is declared twice")
            self.first_qubits[name] = self._found.qubits
            self._found.qubits = most(self._found.qubits + (number or 1))
        else:
            self._found.bits = most(self._found.bits + (number or 1))
            if len(self.scopes) == 1:
                self._found.registers.append((name, number or 1))
        self.scopes[-1][name] = (kind, number or 1)
        return self.skip(";")

    def _size(self, name: str) -> int | None:
        """[n] behind a type or a name; None if there is none."""
        if self._tokens.next != "[":
            return None
        number = constant(self.bracket(), self.constants)
        if not isinstance(number, int) or number < 1:
            raise self._tokens.error(f"the size of register {self._named(name)} is not a number of at least 1")
        return number

    def _named(self, name: str) -> str:
        return self._tokens.next if name in ("qubit", "bit") else name

    def declare_constant(self) -> int:
        """A constant, which sizes and loops may refer to."""
        tokens = self._tokens
        tokens.take()
        kind = tokens.take()
        if tokens.next == "[":
            self.bracket()
        name = tokens.name()
        tokens.expect("=")
        begin = tokens.at
        count = self.skip(";")
        number = constant(tokens.values[begin : tokens.at - 1], self.constants)
        self.constants.pop(name, None)
        if number is not None and kind in ("int", "uint", "float"):
            self.constants[name] = int(number) if kind != "float" and abs(number) <= LARGEST else number
        self.scopes[-1][name] = ("value", 1)
        return count

    def declare_input(self) -> int:
        """A parameter, whose values come with the text."""
        tokens = self._tokens
        tokens.take()
        if tokens.next != "float":
            raise tokens.error(f"an input must be a float, not {tokens.next[:20]!r}", hint="input float[64] theta;")
        tokens.take()
        if tokens.next == "[":
            self.bracket()
        name = tokens.name()
        if len(self.scopes) > 1:
            raise tokens.error("inputs can only be declared outside of blocks")
        if self.known(name) is not None:
            raise tokens.error(f"{name} is declared twice")
        tokens.expect(";")
        self._found.inputs.append(name)
        self.scopes[-1][name] = ("value", 1)
        return 0

    def declare_variable(self) -> int:
        """A classical variable; it may hide a constant of the same name."""
        tokens = self._tokens
        if tokens.take() == "output":
            if tokens.next == "bit":
                return self.declare_register()
            tokens.take()
        while tokens.next == "[":
            self.bracket()
        name = tokens.name()
        self.constants.pop(name, None)
        self.scopes[-1][name] = ("value", 1)
        self._found.bits = most(self._found.bits + 1)
        return self.skip(";")

    def declare_alias(self) -> int:
        """Another name for qubits: `let b = a[0:2] ++ c;`."""
        tokens = self._tokens
        tokens.take()
        name = tokens.name()
        tokens.expect("=")
        size = self.operand()
        while tokens.next == "++":
            tokens.take()
            size += self.operand()
        tokens.expect(";")
        self.scopes[-1][name] = ("qubit", size)
        return 0

    # Operands and expressions

    def bracket(self) -> list[str]:
        """What stands between the bracket that comes now and the one that closes it."""
        tokens, begin, depth = self._tokens, self._tokens.at + 1, 0
        while True:
            token = tokens.take()
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            if not depth:
                return tokens.values[begin : tokens.at - 1]

    def range_length(self, parts: list[str]) -> int | None:
        """How many numbers a:b or a:step:b has."""
        numbers = [constant(piece, self.constants) for piece in pieces(parts, ":")]
        first, last = numbers[0], numbers[-1]
        step = numbers[1] if len(numbers) == 3 else 1
        if not isinstance(first, int) or not isinstance(last, int) or not isinstance(step, int):
            return None
        return max(0, (last - first) // step + 1) if step and len(numbers) in (2, 3) else None

    def skip_parentheses(self) -> int:
        """Skip an expression in parentheses."""
        self._tokens.expect("(")
        return self.skip(")")

    def operands(self) -> tuple[int, list[Operand]]:
        """Operands up to the semicolon; the widest says how often a gate is applied."""
        widest, places = self.operand(), [self._place]
        while self._tokens.next == ",":
            self._tokens.take()
            widest = max(widest, self.operand())
            places.append(self._place)
        self._tokens.expect(";")
        return widest, places

    def touch(self, places: list[Operand]) -> None:
        """Something is done with these operands, unless in a definition."""
        if not self.in_definition:
            for place in places:
                self._found.touch(place)

    def operand(self) -> int:
        """Read one operand; returns how many qubits it stands for."""
        tokens = self._tokens
        name = tokens.take()
        if name[0] == "$":
            number = min(int(name[1:20]), LARGEST)
            self._found.physical = max(self._found.physical, number + 1)
            self._place = range(number, number + 1)
            return 1
        known = self.known(name)
        if known is None:
            raise tokens.error(f"there is no qubit {name[:20]!r}", tokens.at - 1)
        size = known[1]
        first = self.first_qubits.get(name)
        self._place = None if first is None else range(first, first + size)
        while tokens.next == "[":
            self.check_index(name, size)
            inside = self.bracket()
            index = constant(inside, self.constants)
            whole, self._place = self._place, None
            if inside[:1] == ["{"]:
                size = inside.count(",") + 1
            elif ":" in inside:
                size = min(size, self.range_length(inside) or size)
            else:
                size = 1
                if whole is not None and isinstance(index, int) and -len(whole) <= index < len(whole):
                    self._place = range(whole[index], whole[index] + 1)
        return size

    def known(self, name: str) -> tuple[str, int] | None:
        """What a name stands for here, and its size; None if it is not declared."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return ("value", 1) if name in self.constants else None

    def check_index(self, name: str, size: int) -> None:
        """Refuse an index that is a plain number, as most are, and out of range."""
        values, at = self._tokens.values, self._tokens.at + 1
        minus = values[at] == "-"
        digits = values[at + minus]
        if digits.isdigit() and values[at + minus + 1] == "]":
            index = int(digits) if len(digits) < 20 else LARGEST
            if not -size <= (-index if minus else index) < size:
                shown = f"{'-' if minus else ''}{digits[:20]}"
                raise self._tokens.error(f"{name}[{shown}] is used, but {name} has {size}")

    def skip(self, end: str) -> int:
        """Skip an expression up to `end`; returns the operations that it measures and calls."""
        tokens, depth, count = self._tokens, 0, 0
        while (token := tokens.take()) != end or depth:
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            if token == ";" or depth < 0:  # noqa: S105
                raise tokens.error(f"{end!r} was expected, not {token!r}", tokens.at - 1)
            if token == "measure":  # noqa: S105
                self._found.measured = True
                count += self.operand()
                self.touch([self._place])
            elif token[0] == "$":
                self._found.physical = max(self._found.physical, min(int(token[1:20]), LARGEST) + 1)
            elif tokens.next == "[" and (known := self.known(token)) is not None and known[0] != "value":
                self.check_index(token, known[1])
            elif tokens.next == "(" and token in self.functions:
                count = most(count + self.functions[token])
        return count


def pieces(tokens: list[str], separator: str) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    for token in tokens:
        if token == separator:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def most(count: int) -> int:
    """What nested loops and definitions stand for may have millions of digits; nobody needs them."""
    return min(count, LARGEST)
