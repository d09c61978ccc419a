"""Linux namespaces: a test's own mounts, or its own network, in a process of its own."""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess

IN_ONE = ["unshare", "-rm"]
"""What a command begins with that has its own mounts, and may make more of them."""

WITH_A_NETWORK = ["unshare", "-rn"]
"""What a command begins with that has a network of its own, of which the loopback interface is still down."""


def start_loopback(mtu: int) -> None:
    """Start the loopback interface of this process's own network, with packets of so many bytes (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8922, struct.pack("16si12x", b"lo", mtu))  # SIOCSIFMTU
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running


def missing() -> str | None:
    """Why there are none on this system, or None."""
    if subprocess.run([*IN_ONE, "true"], check=False).returncode == 0:
        return None
    return "this test needs user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, or run it as root"
