"""The Hugging Face hub: `hf://datasets/ORG/NAME[@REVISION]/path`, models, spaces and kernels.

`dialect.py` has the requests that read a repository, `tree.py` what is in a commit, `repository.py` the FS, also of
what the caches hold; `commits.py` writes. `access.py` keeps the hub's quotas, for all processes of a user.
"""

from __future__ import annotations

from .repository import Hub

__all__ = ["Hub"]
