"""TLS in processes that fork: its contexts, and sockets whose calls into OpenSSL defer a fork."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from . import process

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TLSSocket(ssl.SSLSocket):
    """A socket each of whose calls into OpenSSL has ended when the process forks. (What `recv`, `recv_into` and
    `sendall` do is `read` and `send`.)"""

    def do_handshake(self, block: bool = False) -> None:
        """Agree on the session."""
        with process.forks_deferred:
            super().do_handshake(block)

    def read(self, len: int = 1024, buffer: bytearray | None = None) -> bytes | int:  # type: ignore[override]
        """Receive up to `len` bytes; into `buffer`, if there is one, returning their number."""
        with process.forks_deferred:
            return super().read(len, buffer)

    def send(self, data: Buffer, flags: int = 0) -> int:
        """Send some of `data`; return how many bytes."""
        with process.forks_deferred:
            return super().send(data, flags)


def client_context(cafile: str | None = None, capath: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a file or a folder, without both those of the platform."""
    with process.forks_deferred:
        context = ssl.create_default_context(cafile=cafile, capath=capath)
    context.sslsocket_class = TLSSocket
    return context
