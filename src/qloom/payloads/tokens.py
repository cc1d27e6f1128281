"""OpenQASM 3 text as tokens, by the rules of the language's own lexer, and whole numbers in it.

Whatever that lexer would read otherwise, or not at all, is refused: a text must not mean one thing to the check and
another to the solver. So a comment ends at a carriage return too, text in quotes is a file's name or bits, and words
that begin a mode of their own (`pragma`, `cal`, an annotation) are not taken at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from qloom.errors import PayloadError

OUTSIDE = frozenset(("extern", "defcal", "defcalgrammar", "cal", "pragma", "duration", "stretch", "box", "OPENQASM"))
DEEPEST = 64  # levels of brackets and blocks: recursive readers fail at some hundreds
LARGEST = 10**18  # of a whole number; what is counted stops there too
CLOSES = {")": "(", "]": "[", "}": "{"}
RESERVED = re.compile(
    r"include|def|gate|let|break|continue|if|else|end|return|for|while|in|switch|case|default|nop|input|output|const"
    r"|readonly|mutable|qreg|qubit|creg|bool|bit|int|uint|float|angle|complex|array|void|gphase|inv|pow|ctrl|negctrl"
    r"|durationof|delay|reset|measure|barrier|true|false|im"
)
LEXER = re.compile(
    r"(?P<blank>[ \t\r\n]+|//[^\r\n]*|/\*[\s\S]*?\*/)"
    r"|(?P<comment>/\*)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<number>0[xX][0-9a-fA-F_]+|0[bBoO][0-7_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?"
    r"(?:[ \t]*(?:im|dt|ns|us|µs|ms|s)\b)?)"
    r"|(?P<physical>\$\d+)"
    r"|(?P<text>\"[^\"\r\n\t]*\"|'[^'\r\n\t]*')"
    r"|(?P<annotation>@[^\W\d])"
    r"|(?P<sign>->|\+\+|\*\*=?|[-+*/%&|^~<>=!]=|<<=?|>>=?|&&|\|\||[-+*/%=<>!&|~^@,:;.()\[\]{}])"
    r"|(?P<other>[\s\S])"
)


@dataclass
class Tokens:
    """The tokens of one text; an empty one ends them."""

    text: str
    values: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    at: int = 0

    def __post_init__(self) -> None:
        opened: list[str] = []
        values, places = self.values, self.places
        for found in LEXER.finditer(self.text):
            kind, value = found.lastgroup, found[0]
            if kind == "blank":
                continue
            places.append(found.start())
            values.append(value)
            if kind == "sign":
                if value in "([{":
                    opened.append(value)
                    if len(opened) > DEEPEST:
                        raise self.error(f"the circuit is nested more than {DEEPEST} deep", len(values) - 1)
                elif value in CLOSES and (not opened or opened.pop() != CLOSES[value]):
                    raise self.error(f"the circuit has a {value} too many", len(values) - 1)
            elif kind == "name":
                if value in OUTSIDE and len(values) > 1:
                    message = f"{value} is not taken: a circuit must be complete in itself"
                    raise self.error(message, len(values) - 1)
            elif kind == "text":
                if values[-2:-1] != ["include"] and value.strip('"01_'):
                    raise self.error(f"{value[:20]} has no place in a circuit", len(values) - 1)
            elif kind == "comment":
                raise PayloadError("the circuit ends within a comment")
            elif kind == "annotation":
                raise self.error(
                    "annotations are not taken", len(values) - 1, hint="write a blank after the @ of ctrl"
                )
            elif kind == "other":
                raise self.error(f"{value!r} has no place in a circuit", len(values) - 1)
        if opened:
            raise PayloadError(f"the circuit has a {opened[-1]} that is not closed")
        values.append("")
        places.append(len(self.text))

    @property
    def next(self) -> str:
        """The token to be read; empty at the end."""
        return self.values[self.at]

    def take(self) -> str:
        """Read one token."""
        value = self.values[self.at]
        if not value:
            raise PayloadError(f"the circuit ends within a statement: {self.text[-40:]!r}", hint="a ; is missing")
        self.at += 1
        return value

    def expect(self, wanted: str) -> None:
        """Read this token and no other."""
        if self.next != wanted:
            found = self.take()
            raise self.error(f"{wanted!r} was expected, not {found[:20]!r}", self.at - 1)
        self.at += 1

    def name(self) -> str:
        """Read a name, which is no word of the language."""
        if not self.next[:1].isidentifier():
            raise self.error(f"a name was expected, not {self.next[:20]!r}")
        if RESERVED.fullmatch(self.next):
            raise self.error(f"{self.next!r} is a word of OpenQASM and cannot be a name")
        return self.take()

    def error(self, message: str, at: int | None = None, hint: str | None = None) -> PayloadError:
        """A refusal, with the line."""
        place = self.places[self.at if at is None else at]
        lines = self.text.count("\n", 0, place) + 1
        return PayloadError(f"{message} (line {lines})", hint=hint)


def number_of(token: str) -> int | float | None:
    """The value of a number; None if the token is none, or one with a unit."""
    try:
        if token[:2].lower() in ("0x", "0b", "0o"):
            return int(token, 0) if len(token) < 20 else LARGEST
        if token.replace("_", "").isdigit():
            return min(int(token), LARGEST) if len(token) < 40 else LARGEST
        return float(token)
    except ValueError:
        return None


def constant(tokens: list[str], names: dict[str, int | float]) -> int | float | None:
    """The value of an expression of numbers and known names; None if it has anything else in it."""
    place = 0

    def peek() -> str:
        return tokens[place] if place < len(tokens) else ""

    def value(least: int) -> int | float:
        nonlocal place
        left = first()
        while (sign := peek()) in POWERS and POWERS[sign] >= least:
            place += 1
            right = value(POWERS[sign] + (sign != "**"))
            left = _combined(sign, left, right)
        return left

    def first() -> int | float:
        nonlocal place
        token = peek()
        place += 1
        if token == "(":  # noqa: S105
            inner = value(1)
            if peek() != ")":
                raise ValueError
            place += 1
            return inner
        if token in ("-", "+"):
            return -value(3) if token == "-" else value(3)  # noqa: S105
        known = names[token] if token in names else number_of(token)
        if known is None:
            raise ValueError
        return known

    try:
        found = value(1)
    except (ValueError, ArithmeticError):
        return None
    return max(-LARGEST, min(LARGEST, found)) if place == len(tokens) else None


POWERS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "**": 4}


def _combined(sign: str, left: int | float, right: int | float) -> int | float:
    match sign:
        case "+":
            found = left + right
        case "-":
            found = left - right
        case "*":
            found = left * right
        case "/":
            found = left // right if isinstance(left, int) and isinstance(right, int) else left / right
        case "%":
            found = left % right
        case _:
            found = float(left) ** float(right)
            if isinstance(left, int) and isinstance(right, int) and right >= 0 and abs(found) <= LARGEST:
                found = left**right
    if isinstance(found, complex) or found != found:
        raise ValueError
    return max(-LARGEST, min(LARGEST, found))
