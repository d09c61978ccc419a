"""Azure Blob Storage: a dialect of `backends/objects/`, which sends all requests.

`container.py` is the FS with its requests and responses. `access.py` finds out which account a container is in and by
what it is reached, and authorises: by tokens that azure-identity fetches, or by signatures.
"""

from __future__ import annotations

from .container import Azure

__all__ = ["Azure"]
