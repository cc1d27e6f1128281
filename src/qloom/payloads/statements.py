"""The statements of an OpenQASM 3 text: what each declares, and how many operations it stands for.

All statements of the language are recognised. Qubits, bits and operations are counted, with loops and definitions of
gates written out. What cannot be counted beforehand (a register whose size is not a constant, a loop over what is not
known) is refused, and so is what reaches outside the text (`include` of files, `extern`, `defcal`).
"""

from __future__ import annotations

import math

from qloom.errors import PayloadError
from qloom.payloads.circuit_use import Circuit, Operand
from qloom.payloads.tokens import LARGEST, Tokens, constant

HINT = 'OpenQASM 3 text: OPENQASM 3.0; include "stdgates.inc"; qubit[2] q; ...'
GATES = ("p", "x", "y", "z", "h", "s", "sdg", "t", "tdg", "sx", "rx", "ry", "rz", "cx", "cy", "cz", "cp", "crx",
         "cry", "crz", "ch", "swap", "ccx", "cswap", "cu", "CX", "phase", "cphase", "id", "u1", "u2", "u3", "U",
         "gphase")  # fmt: skip
MOST_CONTROLS = 1000
TYPES = ("int", "uint", "float", "angle", "bool", "complex", "array", "output")
KNOWN = {"pi": math.pi, "π": math.pi, "tau": math.tau, "τ": math.tau, "euler": math.e, "ℇ": math.e}


class CircuitReader:
    """One pass over the statements; each method returns how many operations it stands for."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._found = Circuit()
        self._gates: dict[str, int] = dict.fromkeys(GATES, 1)
        self._functions: dict[str, int] = {}
        self._constants: dict[str, int | float] = dict(KNOWN)
        self._scopes: list[dict[str, tuple[str, int]]] = [{}]  # name -> what it is, and its size
        self._first: dict[str, int] = {}  # register -> the number of its first qubit
        self._in_definition = 0  # what is done there is done to whatever a call names
        self._place: Operand = None  # of the operand that was read last

    def read(self) -> Circuit:
        """All of it; raises `PayloadError` with the line."""
        tokens = self._tokens
        if tokens.next != "OPENQASM":
            raise PayloadError("the circuit does not begin with OPENQASM 3.0;", hint=HINT)
        tokens.take()
        version = tokens.take()
        if (major := version.partition(".")[0]) != "3":
            raise PayloadError(f"the circuit is OpenQASM {major[:20]}, not 3", hint="qiskit.qasm3.dumps(circuit)")
        tokens.expect(";")
        while tokens.next:
            self._found.operations = _most(self._found.operations + self._statement())
        return self._found

    # Statements

    def _statement(self) -> int:
        tokens = self._tokens
        word = tokens.next
        match word:
            case "include":
                tokens.take()
                if tokens.take()[1:-1] != "stdgates.inc":
                    message = "only stdgates.inc can be included"
                    raise tokens.error(message, tokens.at - 1, hint="write other gates in the text")
                tokens.expect(";")
                return 0
            case "qubit" | "bit" | "qreg" | "creg":
                return self._register()
            case "const":
                return self._constant()
            case "input":
                return self._input()
            case "gate" | "def":
                return self._definition()
            case "let":
                return self._alias()
            case "if":
                return self._choice()
            case "for":
                return self._loop()
            case "while":
                tokens.take()
                return 1 + self._parentheses() + self._body()
            case "switch":
                return self._switch()
            case "reset" | "barrier" | "delay" | "nop":
                return self._instruction()
            case "return" | "break" | "continue" | "end":
                tokens.take()
                return 1 + self._skip(";")
            case "measure":
                return self._skip(";")
            case _ if word in TYPES:
                return self._variable()
            case _:
                return self._call()

    def _body(self) -> int:
        """A block, or a single statement."""
        if self._tokens.next != "{":
            return self._statement()
        self._tokens.take()
        self._scopes.append({})
        count = 0
        while self._tokens.next != "}":
            count = _most(count + self._statement())
        self._tokens.take()
        self._scopes.pop()
        return count

    def _register(self) -> int:
        tokens = self._tokens
        word = tokens.take()
        old = word in ("qreg", "creg")
        size = None if old else self._size(word)
        name = tokens.name()
        number = self._size(name) if old else size
        kind = "qubit" if word in ("qubit", "qreg") else "bit"
        if kind == "qubit":
            if len(self._scopes) > 1:
                raise tokens.error("qubits can only be declared outside of blocks")
            if name in self._scopes[0]:
                raise tokens.error(f"{name} is declared twice")
            self._first[name] = self._found.qubits
            self._found.qubits = _most(self._found.qubits + (number or 1))
        else:
            self._found.bits = _most(self._found.bits + (number or 1))
            if len(self._scopes) == 1:
                self._found.registers.append((name, number or 1))
        self._scopes[-1][name] = (kind, number or 1)
        return self._skip(";")

    def _size(self, name: str) -> int | None:
        """[n] behind a type or a name; None if there is none."""
        if self._tokens.next != "[":
            return None
        number = constant(self._bracket(), self._constants)
        if not isinstance(number, int) or number < 1:
            raise self._tokens.error(f"the size of register {self._named(name)} is not a number of at least 1")
        return number

    def _named(self, name: str) -> str:
        return self._tokens.next if name in ("qubit", "bit") else name

    def _bracket(self) -> list[str]:
        """What stands between the bracket that comes now and the one that closes it."""
        tokens, begin, depth = self._tokens, self._tokens.at + 1, 0
        while True:
            token = tokens.take()
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            if not depth:
                return tokens.values[begin : tokens.at - 1]

    def _constant(self) -> int:
        tokens = self._tokens
        tokens.take()
        kind = tokens.take()
        if tokens.next == "[":
            self._bracket()
        name = tokens.name()
        tokens.expect("=")
        begin = tokens.at
        count = self._skip(";")
        number = constant(tokens.values[begin : tokens.at - 1], self._constants)
        self._constants.pop(name, None)
        if number is not None and kind in ("int", "uint", "float"):
            self._constants[name] = int(number) if kind != "float" and abs(number) <= LARGEST else number
        self._scopes[-1][name] = ("value", 1)
        return count

    def _input(self) -> int:
        """A parameter, whose values come with the text."""
        tokens = self._tokens
        tokens.take()
        if tokens.next != "float":
            raise tokens.error(f"an input must be a float, not {tokens.next[:20]!r}", hint="input float[64] theta;")
        tokens.take()
        if tokens.next == "[":
            self._bracket()
        name = tokens.name()
        if len(self._scopes) > 1:
            raise tokens.error("inputs can only be declared outside of blocks")
        if self._known(name) is not None:
            raise tokens.error(f"{name} is declared twice")
        tokens.expect(";")
        self._found.inputs.append(name)
        self._scopes[-1][name] = ("value", 1)
        return 0

    def _variable(self) -> int:
        """A classical variable; it may hide a constant of the same name."""
        tokens = self._tokens
        if tokens.take() == "output":
            if tokens.next == "bit":
                return self._register()
            tokens.take()
        while tokens.next == "[":
            self._bracket()
        name = tokens.name()
        self._constants.pop(name, None)
        self._scopes[-1][name] = ("value", 1)
        self._found.bits = _most(self._found.bits + 1)
        return self._skip(";")

    def _definition(self) -> int:
        """A gate or a function costs nothing until it is called; its own name is not known within."""
        tokens = self._tokens
        known = self._gates if tokens.take() == "gate" else self._functions
        name = tokens.name()
        scope: dict[str, tuple[str, int]] = {}
        if known is self._gates:
            if tokens.next == "(":
                scope |= dict.fromkeys(self._bracket(), ("value", 1))
            while tokens.next != "{":
                scope[tokens.take()] = ("qubit", 1)
        else:
            scope |= {words[-1]: ("value", 1) for words in _pieces(self._bracket(), ",") if words}
            while tokens.next != "{":
                tokens.take()
        known.pop(name, None)
        hidden = {one: self._constants.pop(one) for one in scope if one in self._constants}
        self._scopes.append(scope)
        self._in_definition += 1
        known[name] = self._body()
        self._in_definition -= 1
        self._scopes.pop()
        self._constants |= hidden
        return 0

    def _alias(self) -> int:
        tokens = self._tokens
        tokens.take()
        name = tokens.name()
        tokens.expect("=")
        size = self._operand()
        while tokens.next == "++":
            tokens.take()
            size += self._operand()
        tokens.expect(";")
        self._scopes[-1][name] = ("qubit", size)
        return 0

    def _choice(self) -> int:
        tokens = self._tokens
        tokens.take()
        count = 1 + self._parentheses() + self._body()
        if tokens.next == "else":
            tokens.take()
            count += self._body()
        return _most(count)

    def _parentheses(self) -> int:
        self._tokens.expect("(")
        return self._skip(")")

    def _loop(self) -> int:
        tokens = self._tokens
        tokens.take()
        tokens.take()  # the type
        if tokens.next == "[":
            self._bracket()
        name = tokens.name()
        tokens.expect("in")
        hidden = self._constants.pop(name, None)
        turns = self._turns()
        count = 1 + turns * self._body()
        if hidden is not None:
            self._constants[name] = hidden
        return _most(max(count, turns))

    def _turns(self) -> int:
        tokens = self._tokens
        if tokens.next == "{":
            return self._bracket().count(",") + 1
        if tokens.next == "[":
            turns = self._range(self._bracket())
            if turns is not None:
                return turns
        elif (known := self._known(tokens.next)) is not None and known[0] == "bit":
            tokens.take()
            return known[1]
        raise tokens.error("how often a loop runs must be known", hint="for int i in [0:9] { ... }")

    def _range(self, parts: list[str]) -> int | None:
        """How many numbers a:b or a:step:b has."""
        numbers = [constant(piece, self._constants) for piece in _pieces(parts, ":")]
        first, last = numbers[0], numbers[-1]
        step = numbers[1] if len(numbers) == 3 else 1
        if not isinstance(first, int) or not isinstance(last, int) or not isinstance(step, int):
            return None
        return max(0, (last - first) // step + 1) if step and len(numbers) in (2, 3) else None

    def _switch(self) -> int:
        tokens = self._tokens
        tokens.take()
        count = 1 + self._parentheses()
        tokens.expect("{")
        while tokens.next != "}":
            if tokens.next == "default":
                tokens.take()
            else:
                tokens.expect("case")
                while tokens.next != "{":
                    tokens.take()
            count = _most(count + self._body())
        tokens.take()
        return count

    def _instruction(self) -> int:
        tokens = self._tokens
        word = tokens.take()
        if word == "delay":
            self._bracket()
        if tokens.next == ";":
            tokens.take()
            return 1
        width, places = self._operands()
        if word != "barrier":
            self._touch(places)
        return 1 if word == "barrier" else width

    # Gates

    def _call(self) -> int:
        tokens = self._tokens
        times, modifiers = 1, tokens.at
        while tokens.next in ("ctrl", "negctrl", "inv", "pow"):
            times = _most(times * self._modifier())
        begin = tokens.at
        if not tokens.next[:1].isidentifier():
            raise tokens.error(f"{tokens.next[:20]!r} is no statement")
        name = tokens.take()
        following = tokens.next
        if following == "(":
            self._bracket()
            following = tokens.next
        if following[:1].isidentifier() or following[:1] == "$" or name == "gphase":
            cost = self._gates.get(name)
            if cost is None:
                raise tokens.error(f"there is no gate {name!r}", begin, hint="define it: gate name q { ... }")
            if following == ";":
                tokens.take()
                return times
            widest, places = self._operands()
            self._touch(places)
            if not self._in_definition:
                self._found.call(name if modifiers == begin else f"modified {name}", places)
            return _most(times * max(cost, 1) * widest)
        if self._known(name) is None and name not in self._functions:
            raise tokens.error(f"there is no gate {name!r}", begin, hint="define it: gate name q { ... }")
        tokens.at = begin
        return max(1, self._skip(";"))

    def _modifier(self) -> int:
        tokens = self._tokens
        word = tokens.take()
        number: int | float | None = 1
        if tokens.next == "(":
            number = constant(self._bracket(), self._constants)
        tokens.expect("@")
        if number is None:
            raise tokens.error(f"what stands behind {word} must be a number")
        if word == "pow":
            return math.ceil(abs(number)) or 1
        if number > MOST_CONTROLS:
            raise tokens.error(f"a gate has at most {MOST_CONTROLS} controls")
        return 1

    def _operands(self) -> tuple[int, list[Operand]]:
        """Operands up to the semicolon; the widest says how often a gate is applied."""
        widest, places = self._operand(), [self._place]
        while self._tokens.next == ",":
            self._tokens.take()
            widest = max(widest, self._operand())
            places.append(self._place)
        self._tokens.expect(";")
        return widest, places

    def _touch(self, places: list[Operand]) -> None:
        if not self._in_definition:
            for place in places:
                self._found.touch(place)

    def _operand(self) -> int:
        tokens = self._tokens
        name = tokens.take()
        if name[0] == "$":
            number = min(int(name[1:20]), LARGEST)
            self._found.physical = max(self._found.physical, number + 1)
            self._place = range(number, number + 1)
            return 1
        known = self._known(name)
        if known is None:
            raise tokens.error(f"there is no qubit {name[:20]!r}", tokens.at - 1)
        size = known[1]
        first = self._first.get(name)
        self._place = None if first is None else range(first, first + size)
        while tokens.next == "[":
            self._in_range(name, size)
            inside = self._bracket()
            index = constant(inside, self._constants)
            whole, self._place = self._place, None
            if inside[:1] == ["{"]:
                size = inside.count(",") + 1
            elif ":" in inside:
                size = min(size, self._range(inside) or size)
            else:
                size = 1
                if whole is not None and isinstance(index, int) and -len(whole) <= index < len(whole):
                    self._place = range(whole[index], whole[index] + 1)
        return size

    def _known(self, name: str) -> tuple[str, int] | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return ("value", 1) if name in self._constants else None

    def _in_range(self, name: str, size: int) -> None:
        """For an index that is a plain number, as most are."""
        values, at = self._tokens.values, self._tokens.at + 1
        minus = values[at] == "-"
        digits = values[at + minus]
        if digits.isdigit() and values[at + minus + 1] == "]":
            index = int(digits) if len(digits) < 20 else LARGEST
            if not -size <= (-index if minus else index) < size:
                shown = f"{'-' if minus else ''}{digits[:20]}"
                raise self._tokens.error(f"{name}[{shown}] is used, but {name} has {size}")

    def _skip(self, end: str) -> int:
        """Over an expression; what it measures and which functions it calls is counted."""
        tokens, depth, count = self._tokens, 0, 0
        while (token := tokens.take()) != end or depth:
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            if token == ";" or depth < 0:  # noqa: S105
                raise tokens.error(f"{end!r} was expected, not {token!r}", tokens.at - 1)
            if token == "measure":  # noqa: S105
                self._found.measured = True
                count += self._operand()
                self._touch([self._place])
            elif token[0] == "$":
                self._found.physical = max(self._found.physical, min(int(token[1:20]), LARGEST) + 1)
            elif tokens.next == "[" and (known := self._known(token)) is not None and known[0] != "value":
                self._in_range(token, known[1])
            elif tokens.next == "(" and token in self._functions:
                count = _most(count + self._functions[token])
        return count


def _pieces(tokens: list[str], separator: str) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    for token in tokens:
        if token == separator:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def _most(count: int) -> int:
    """What nested loops and definitions stand for may have millions of digits; nobody needs them."""
    return min(count, LARGEST)
