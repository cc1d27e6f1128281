"""The statements of an OpenQASM 3 text: what each declares, and how many operations it stands for.

All statements of the language are recognised. Qubits, bits and operations are counted, with loops and definitions of
gates written out. What cannot be counted beforehand (a register whose size is not a constant, a loop over what is not
known) is refused, and so is what reaches outside the text (`include` of files, `extern`, `defcal`).
"""

from __future__ import annotations

import math

from qloom.errors import PayloadError
from qloom.payloads.circuit_use import Circuit
from qloom.payloads.names import Names, most, pieces
from qloom.payloads.tokens import Tokens, constant

HINT = 'OpenQASM 3 text: OPENQASM 3.0; include "stdgates.inc"; qubit[2] q; ...'
GATES = ("p", "x", "y", "z", "h", "s", "sdg", "t", "tdg", "sx", "rx", "ry", "rz", "cx", "cy", "cz", "cp", "crx",
         "cry", "crz", "ch", "swap", "ccx", "cswap", "cu", "CX", "phase", "cphase", "id", "u1", "u2", "u3", "U",
         "gphase")  # fmt: skip
MOST_CONTROLS = 1000
TYPES = ("int", "uint", "float", "angle", "bool", "complex", "array", "output")


class CircuitReader:
    """One pass over the statements; each method returns how many operations it stands for."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._found = Circuit()
        self._gates: dict[str, int] = dict.fromkeys(GATES, 1)
        self._names = Names(tokens, self._found)

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
            self._found.operations = most(self._found.operations + self._statement())
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
                return self._names.declare_register()
            case "const":
                return self._names.declare_constant()
            case "input":
                return self._names.declare_input()
            case "gate" | "def":
                return self._definition()
            case "let":
                return self._names.declare_alias()
            case "if":
                return self._choice()
            case "for":
                return self._loop()
            case "while":
                tokens.take()
                return 1 + self._names.skip_parentheses() + self._body()
            case "switch":
                return self._switch()
            case "reset" | "barrier" | "delay" | "nop":
                return self._instruction()
            case "return" | "break" | "continue" | "end":
                tokens.take()
                return 1 + self._names.skip(";")
            case "measure":
                return self._names.skip(";")
            case _ if word in TYPES:
                return self._names.declare_variable()
            case _:
                return self._call()

    def _body(self) -> int:
        """A block, or a single statement."""
        if self._tokens.next != "{":
            return self._statement()
        self._tokens.take()
        self._names.scopes.append({})
        count = 0
        while self._tokens.next != "}":
            count = most(count + self._statement())
        self._tokens.take()
        self._names.scopes.pop()
        return count

    def _definition(self) -> int:
        """A gate or a function costs nothing until it is called; its own name is not known within."""
        tokens = self._tokens
        known = self._gates if tokens.take() == "gate" else self._names.functions
        name = tokens.name()
        scope: dict[str, tuple[str, int]] = {}
        if known is self._gates:
            if tokens.next == "(":
                scope |= dict.fromkeys(self._names.bracket(), ("value", 1))
            while tokens.next != "{":
                scope[tokens.take()] = ("qubit", 1)
        else:
            scope |= {words[-1]: ("value", 1) for words in pieces(self._names.bracket(), ",") if words}
            while tokens.next != "{":
                tokens.take()
        known.pop(name, None)
        hidden = {one: self._names.constants.pop(one) for one in scope if one in self._names.constants}
        self._names.scopes.append(scope)
        self._names.in_definition += 1
        known[name] = self._body()
        self._names.in_definition -= 1
        self._names.scopes.pop()
        self._names.constants |= hidden
        return 0

    def _choice(self) -> int:
        tokens = self._tokens
        tokens.take()
        count = 1 + self._names.skip_parentheses() + self._body()
        if tokens.next == "else":
            tokens.take()
            count += self._body()
        return most(count)

    def _loop(self) -> int:
        tokens = self._tokens
        tokens.take()
        tokens.take()  # the type
        if tokens.next == "[":
            self._names.bracket()
        name = tokens.name()
        tokens.expect("in")
        hidden = self._names.constants.pop(name, None)
        turns = self._turns()
        count = 1 + turns * self._body()
        if hidden is not None:
            self._names.constants[name] = hidden
        return most(max(count, turns))

    def _turns(self) -> int:
        tokens = self._tokens
        if tokens.next == "{":
            return self._names.bracket().count(",") + 1
        if tokens.next == "[":
            turns = self._names.range_length(self._names.bracket())
            if turns is not None:
                return turns
        elif (known := self._names.known(tokens.next)) is not None and known[0] == "bit":
            tokens.take()
            return known[1]
        raise tokens.error("how often a loop runs must be known", hint="for int i in [0:9] { ... }")

    def _switch(self) -> int:
        tokens = self._tokens
        tokens.take()
        count = 1 + self._names.skip_parentheses()
        tokens.expect("{")
        while tokens.next != "}":
            if tokens.next == "default":
                tokens.take()
            else:
                tokens.expect("case")
                while tokens.next != "{":
                    tokens.take()
            count = most(count + self._body())
        tokens.take()
        return count

    def _instruction(self) -> int:
        tokens = self._tokens
        word = tokens.take()
        if word == "delay":
            self._names.bracket()
        if tokens.next == ";":
            tokens.take()
            return 1
        width, places = self._names.operands()
        if word != "barrier":
            self._names.touch(places)
        return 1 if word == "barrier" else width

    # Gates

    def _call(self) -> int:
        tokens = self._tokens
        times, modifiers = 1, tokens.at
        while tokens.next in ("ctrl", "negctrl", "inv", "pow"):
            times = most(times * self._modifier())
        begin = tokens.at
        if not tokens.next[:1].isidentifier():
            raise tokens.error(f"{tokens.next[:20]!r} is no statement")
        name = tokens.take()
        following = tokens.next
        if following == "(":
            self._names.bracket()
            following = tokens.next
        if following[:1].isidentifier() or following[:1] == "$" or name == "gphase":
            cost = self._gates.get(name)
            if cost is None:
                raise tokens.error(f"there is no gate {name!r}", begin, hint="define it: gate name q { ... }")
            if following == ";":
                tokens.take()
                return times
            widest, places = self._names.operands()
            self._names.touch(places)
            if not self._names.in_definition:
                self._found.call(name if modifiers == begin else f"modified {name}", places)
            return most(times * max(cost, 1) * widest)
        if self._names.known(name) is None and name not in self._names.functions:
            raise tokens.error(f"there is no gate {name!r}", begin, hint="define it: gate name q { ... }")
        tokens.at = begin
        return max(1, self._names.skip(";"))

    def _modifier(self) -> int:
        tokens = self._tokens
        word = tokens.take()
        number: int | float | None = 1
        if tokens.next == "(":
            number = constant(self._names.bracket(), self._names.constants)
        tokens.expect("@")
        if number is None:
            raise tokens.error(f"what stands behind {word} must be a number")
        if word == "pow":
            return math.ceil(abs(number)) or 1
        if number > MOST_CONTROLS:
            raise tokens.error(f"a gate has at most {MOST_CONTROLS} controls")
        return 1
