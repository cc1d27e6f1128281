"""Munge: who sent this, on a site whose machines share a key.

A credential is made for one request: it holds the method, the path and the digest of the body, so that it is worth
nothing for another one, and munged refuses one that it has decoded before.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from qloom.broker.problems import Unauthenticated, Unavailable
from qloom.errors import InputError

LIBRARY = "libmunge.so.2"
OPT_SOCKET = 8  # MUNGE_OPT_SOCKET of munge.h
NO_DAEMON, TIMED_OUT, EXPIRED, REPLAYED = 6, 7, 15, 17


def statement(method: str, path: str, body: bytes) -> bytes:
    """What a credential says: this request and no other."""
    return f"{method.upper()}\n{path}\n{hashlib.sha256(body).hexdigest()}".encode()


class Munge:
    """libmunge, called directly; `socket` is that of a munged elsewhere than usual."""

    def __init__(self, library: str | None = None, socket: str | None = None) -> None:
        try:
            self._lib: Any = ctypes.CDLL(library or LIBRARY)
        except OSError:
            raise InputError("munge is not installed here", hint="install libmunge2, or use tokens") from None
        self._lib.munge_ctx_create.restype = ctypes.c_void_p
        self._lib.munge_ctx_strerror.restype = ctypes.c_char_p
        self._lib.munge_strerror.restype = ctypes.c_char_p
        self._socket = socket.encode() if socket else None

    def encode(self, text: bytes) -> str:
        """A credential for a text, as whoever runs this process."""
        context, credential = self._context(), ctypes.c_char_p()
        try:
            error = self._lib.munge_encode(ctypes.byref(credential), context, text, len(text))
            if error != 0 or credential.value is None:
                raise InputError(f"munge: {self._lib.munge_strerror(error).decode()}", hint="is munged running?")
            return credential.value.decode()
        finally:
            _free(credential)
            self._lib.munge_ctx_destroy(context)

    def decode(self, credential: str) -> tuple[int, bytes]:
        """The user id of whoever made a credential, and its text."""
        context = self._context()
        text, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        try:
            error = self._lib.munge_decode(
                credential.encode("ascii", "replace"),
                context,
                *(ctypes.byref(out) for out in (text, length, uid, gid)),
            )
            found = ctypes.string_at(text.value, length.value) if text.value else b""
            if error in (NO_DAEMON, TIMED_OUT):
                raise Unavailable("munged does not answer on the broker's machine", hint="is munged running there?")
            if error != 0:
                what = {REPLAYED: "was used before", EXPIRED: "is too old"}.get(error, "is not valid")
                raise Unauthenticated(f"the munge credential {what}", hint="make a new one for each request")
            return uid.value, found
        finally:
            _free(text)
            self._lib.munge_ctx_destroy(context)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self._lib.munge_ctx_create())
        if self._socket is not None:
            self._lib.munge_ctx_set(context, OPT_SOCKET, ctypes.c_char_p(self._socket))
        return context


def _free(pointer: Any) -> None:
    if pointer:
        ctypes.CDLL(None).free(pointer)
