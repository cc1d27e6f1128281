"""Which device a payload is given to: one rule for brokers in process, brokers elsewhere and what jobs hold.

A payload that names a device goes there or is refused. Any other one goes to a device that takes it, by kind, size
and target; of several to one that is up, and of those to the one that would start it first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qloom.device import Description
from qloom.errors import PayloadError, QuantumFailed, closest
from qloom.model import Payload, plain_value


@plain_value
class DeviceOffer:
    """A device as whoever chooses knows it now."""

    description: Description
    up: bool
    wait_s: float  # until a new task would start
    check: Callable[[Payload], None]  # raises `PayloadError` for what it cannot take

    @property
    def name(self) -> str:
        """What users call it."""
        return self.description.name


def choose_device(offers: Sequence[DeviceOffer], payload: Payload | None) -> str:
    """The name of a device; without a payload, of any that is up with the least to do."""
    if not offers:
        raise QuantumFailed("this site has no QPU", hint="add one with --qpu NAME:TECHNOLOGY")
    if payload is not None and payload.device is not None:
        return _named(offers, payload)
    able = list(offers) if payload is None else _able(offers, payload)
    if payload is not None and not able:
        raise no_device(offers, payload)
    return able[0].name if len(able) == 1 else min(able, key=lambda offer: (not offer.up, offer.wait_s)).name


def _named(offers: Sequence[DeviceOffer], payload: Payload) -> str:
    named = next((offer for offer in offers if offer.name == payload.device), None)
    if named is None:
        names = [offer.name for offer in offers]
        hint = f"{closest(str(payload.device), names)} there is: {', '.join(names)}".lstrip()
        raise PayloadError(f"no QPU is called {payload.device!r}", hint=hint)
    try:
        named.check(payload)
    except PayloadError as refusal:
        if others := [offer.name for offer in _able(offers, payload)]:
            raise PayloadError(refusal.message, hint=f"QPU {' or '.join(others)} takes it") from None
        raise
    return named.name


def _able(offers: Sequence[DeviceOffer], payload: Payload) -> list[DeviceOffer]:
    able = []
    for offer in offers:
        try:
            offer.check(payload)
        except PayloadError:
            continue
        able.append(offer)
    return able


def no_device(offers: Sequence[DeviceOffer], payload: Payload) -> PayloadError:
    """Why none takes a payload: what the only one of its kind says, or in short what each says."""
    refusals: list[tuple[DeviceOffer, PayloadError]] = []
    for offer in offers:
        try:
            offer.check(payload)
        except PayloadError as refusal:
            refusals.append((offer, refusal))
    of_its_kind = [refusal for offer, refusal in refusals if payload.kind in offer.description.payloads]
    if len(of_its_kind) == 1:
        return of_its_kind[0]
    if of_its_kind:
        said = "; ".join(refusal.message for refusal in of_its_kind)
        return PayloadError(f"no QPU takes this payload: {said}", hint=of_its_kind[0].hint)
    takes = "; ".join(f"{offer.name} takes {_kinds(offer.description)}" for offer in offers)
    return PayloadError(f"no QPU here takes a payload of kind {payload.kind!r}", hint=f"{takes}{_remedy(payload)}")


def _kinds(description: Description) -> str:
    return ", ".join(kind for kind in description.payloads if kind not in ("delay", "command"))


def _remedy(payload: Payload) -> str:
    technology = {"openqasm3": "superconducting", "pulser": "neutral-atoms", "qubo": "annealer"}.get(payload.kind)
    return f"; another one is added by --qpu NAME:{technology}" if technology else ""
