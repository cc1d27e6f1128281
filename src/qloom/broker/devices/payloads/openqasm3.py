"""OpenQASM 3 text in an envelope: a check that reads it once and runs nothing.

This is a gate keeper, not a compiler: header, brackets, declared registers and their sizes, gates that exist,
indices in range, something measured, and nothing that reaches outside the text (`include` of files, `extern`,
`defcal`). The full parse is made in the solver's own process, where it can neither block nor stop the broker.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from qloom.errors import PayloadError

LONGEST = 4_000_000  # characters
HINT = 'OpenQASM 3 text: OPENQASM 3.0; include "stdgates.inc"; qubit[2] q; ...'
GATES = frozenset(
    re.findall(
        r"\S+",
        "p x y z h s sdg t tdg sx rx ry rz cx cy cz cp crx cry crz ch swap ccx cswap cu CX phase cphase id u1 u2 u3 "
        "U gphase",
    )
)
OUTSIDE = ("extern", "defcal", "defcalgrammar", "cal", "pragma", "input", "duration", "stretch", "box")
OTHER = frozenset(
    re.findall(
        r"\S+",
        "bit qubit qreg creg let const int uint float angle bool complex array gate def return if else for while end "
        "break continue reset measure barrier delay switch case default output ctrl negctrl inv pow",
    )
)
TOKEN = re.compile(r'"[^"\n]*"|[A-Za-z_$][\w$]*|\d[\w.]*|\.\d+|[-+*/%=<>!&|~^@,:;.()[\]{}]|\S')
MODIFIER = re.compile(r"(?:(?:neg)?ctrl(?:\s*\([^()]*\))?|inv|pow\s*\([^()]*\))\s*@\s*")
DECLARED = re.compile(r"(qubit|bit)\b\s*(?:\[\s*(\w+)\s*\])?\s*([A-Za-z_]\w*)")
OLD_DECLARED = re.compile(r"(qreg|creg)\s+([A-Za-z_]\w*)\s*(?:\[\s*(\w+)\s*\])?\s*$")
CONSTANT = re.compile(r"const\s+u?int\s*(?:\[[^\]]*\])?\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*$")
PHYSICAL = re.compile(r"\$(\d{1,6})\b")
USED = re.compile(r"([A-Za-z_]\w*)\s*\[\s*(-?\d+)\s*\]")
CLOSES = {")": "(", "]": "[", "}": "{"}


@dataclass
class Circuit:
    """What the check found in one text."""

    qubits: dict[str, int] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    gates: set[str] = field(default_factory=lambda: set(GATES))
    physical: int = 0  # $0, $1, ...: one more than the highest
    measured: bool = False

    @property
    def size(self) -> int:
        """Qubits in all registers, or physical ones."""
        return max(sum(self.qubits.values()), self.physical)


def circuits(body: Any) -> list[str]:
    """The texts in a body: one, or several that share one set-up."""
    texts = body if isinstance(body, list | tuple) else [body]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise PayloadError("an OpenQASM 3 payload is text, or a list of texts", hint=HINT)
    return list(texts)


def read_circuit(text: str) -> Circuit:
    """Check one text; raises `PayloadError` with the line."""
    if len(text) > LONGEST:
        raise PayloadError(f"the circuit has {len(text)} characters, at most {LONGEST} are taken")
    bare = _without_comments(text)
    header = re.match(r"\s*OPENQASM\s+(\d+)(?:\.\d+)?\s*;", bare)
    if header is None:
        raise PayloadError("the circuit does not begin with OPENQASM 3.0;", hint=HINT)
    if header[1] != "3":
        raise PayloadError(f"the circuit is OpenQASM {header[1]}, not 3", hint="qiskit.qasm3.dumps(circuit)")
    _brackets(bare)
    found = Circuit()
    line = 1 + header[0].count("\n")
    for piece in re.finditer(r"[^;{}]*[;{}]?", bare[header.end() :]):
        statement = piece[0].rstrip(";{}").strip()
        if statement:
            begins = piece[0][: len(piece[0]) - len(piece[0].lstrip())].count("\n")
            _statement(found, statement, f" (line {line + begins})")
            if piece[0][-1] not in ";{}":
                raise PayloadError(f"the circuit ends within a statement: {statement[:40]!r}", hint="a ; is missing")
        line += piece[0].count("\n")
    if not found.size:
        raise PayloadError("the circuit declares no qubits", hint=HINT)
    if not found.measured:
        raise PayloadError("the circuit measures nothing", hint="c = measure q;")
    return found


def shape(text: str) -> str:
    """A digest of the circuit without its angles: the same for the same circuit with new parameters."""
    bare = re.sub(r"\s+", " ", re.sub(r"\([^()]*\)", "()", _without_comments(text)))
    return hashlib.sha256(bare.encode()).hexdigest()[:16]


def _statement(found: Circuit, statement: str, where: str) -> None:
    word = re.match(r"[A-Za-z_$@#]\w*", statement)
    first = word[0] if word else ""
    if first == "include":
        if not re.fullmatch(r'include\s*"stdgates\.inc"', statement):
            raise PayloadError(f"only stdgates.inc can be included{where}", hint="write other gates in the text")
    elif first in OUTSIDE or first.startswith(("@", "#")):
        raise PayloadError(f"{first} is not taken: a circuit must be complete in itself{where}")
    elif constant := CONSTANT.match(statement):
        found.constants[constant[1]] = int(constant[2])
    elif first in ("gate", "def"):
        name = re.match(r"(?:gate|def)\s+([A-Za-z_]\w*)", statement)
        if name is None:
            raise PayloadError(f"a {first} without a name{where}")
        found.gates.add(name[1])
    elif declared := DECLARED.match(statement):
        _declare(found, declared[1] == "qubit", declared[3], declared[2], where)
    elif declared := OLD_DECLARED.match(statement):
        _declare(found, declared[1] == "qreg", declared[2], declared[3], where)
    else:
        _call(found, MODIFIER.sub("", statement), where)
    if re.search(r"\bmeasure\b", statement):
        found.measured = True
    for number in PHYSICAL.findall(statement):
        found.physical = max(found.physical, int(number) + 1)
    for name, index in USED.findall(statement):
        size = found.qubits.get(name, found.bits.get(name))
        if size is not None and not -size <= int(index) < size and first not in ("qreg", "creg"):
            raise PayloadError(f"{name}[{index}] is used, but {name} has {size}{where}")


def _declare(found: Circuit, is_qubit: bool, name: str, size: str | None, where: str) -> None:
    number = 1 if size is None else int(size) if size.isdigit() else found.constants.get(size, 0)
    if number < 1:
        raise PayloadError(f"the size of register {name} is not a number of at least 1{where}")
    if is_qubit and name in found.qubits:
        raise PayloadError(f"{name} is declared twice{where}")
    (found.qubits if is_qubit else found.bits)[name] = number


def _call(found: Circuit, statement: str, where: str) -> None:
    """A gate must be a known one; an assignment or a control statement is left to the full parse."""
    word = re.match(r"[A-Za-z_]\w*", statement)
    if word is None or "=" in statement or "->" in statement:
        if word is None and not re.match(r"[\d$)]", statement):
            raise PayloadError(f"{statement[:20]!r} is no statement{where}")
        return
    if word[0] not in found.gates and word[0] not in OTHER:
        raise PayloadError(f"there is no gate {word[0]!r}{where}", hint="define it: gate name q { ... }")


def _without_comments(text: str) -> str:
    """Line breaks are kept. By `find`, not by one expression: that is quadratic in comments that do not end."""
    kept: list[str] = []
    place = 0
    while (begin := text.find("/", place)) >= 0:
        mark = text[begin : begin + 2]
        kept.append(text[place:begin])
        if mark == "//":
            end = text.find("\n", begin)
            place = len(text) if end < 0 else end
        elif mark == "/*":
            end = text.find("*/", begin + 2)
            if end < 0:
                raise PayloadError("the circuit ends within a comment")
            kept.append("\n" * text.count("\n", begin, end))
            place = end + 2
        else:
            kept.append("/")
            place = begin + 1
    return "".join([*kept, text[place:]])


def _brackets(text: str) -> None:
    opened: list[str] = []
    for token in TOKEN.finditer(text):
        if token[0] in "([{":
            opened.append(token[0])
        elif token[0] in CLOSES and (not opened or opened.pop() != CLOSES[token[0]]):
            raise PayloadError(
                f"the circuit has a {token[0]} too many (line {text.count(chr(10), 0, token.start()) + 1})"
            )
    if opened:
        raise PayloadError(f"the circuit has a {opened[-1]} that is not closed")
