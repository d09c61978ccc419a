"""Files on web servers, `https://host/path` and `http://host/path`: read only, and listed by a manifest alone.

`dialect.py` has the requests and what their responses mean, `site.py` the FS.
"""

from __future__ import annotations

from .site import Http, Https

__all__ = ["Http", "Https"]
