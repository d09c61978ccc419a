"""Custom schemes: those of fsabs, which reads PFIO's configuration file."""

from __future__ import annotations

from ....urls import config


def add_custom_scheme(name: str, scheme: str, data: dict[str, str] | None = None) -> None:
    """Add a custom scheme to this process, or replace it.

    Args:
        name: of the custom scheme.
        scheme: the scheme that it builds on.
        data: its options.
    """
    config.add_custom_scheme(name, scheme, data)


def get_custom_scheme(name: str) -> dict[str, str] | None:
    """Return the options of a custom scheme, `scheme` included; None if there is none of that name."""
    return config.get_custom_scheme(name)
