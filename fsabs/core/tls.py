"""TLS in processes that fork: its contexts, and sockets whose calls into OpenSSL defer a fork."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from .process import allow_forks, defer_forks, forks_deferred

if TYPE_CHECKING:
    from typing_extensions import Buffer


_do_handshake, _read, _send = ssl.SSLSocket.do_handshake, ssl.SSLSocket.read, ssl.SSLSocket.send


class TLSSocket(ssl.SSLSocket):
    """A socket each of whose calls into OpenSSL has ended when the process forks.

    `recv` and `recv_into` call `read`, and `sendall` calls `send`.
    """

    def do_handshake(self, block: bool = False) -> None:
        """Agree on the session."""
        thread = defer_forks()
        try:
            _do_handshake(self, block)
        finally:
            allow_forks(thread)

    def read(self, len: int = 1024, buffer: bytearray | None = None) -> bytes | int:  # type: ignore[override]
        """Receive up to `len` bytes; into `buffer`, if there is one, returning their number."""
        thread = defer_forks()
        try:
            return _read(self, len, buffer)
        finally:
            allow_forks(thread)

    def send(self, data: Buffer, flags: int = 0) -> int:
        """Send some of `data`; return how many bytes."""
        thread = defer_forks()
        try:
            return _send(self, data, flags)
        finally:
            allow_forks(thread)


def client_context(cafile: str | None = None, capath: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a file or a folder, without both those of the platform."""
    with forks_deferred:
        context = ssl.create_default_context(cafile=cafile, capath=capath)
    context.sslsocket_class = TLSSocket
    return context
