"""The Hugging Face hub: `hf://datasets/ORG/NAME[@REVISION]/path`, models, spaces and kernels.

`access.py` has the endpoint and the user's token, `dialect.py` the requests that read a repository, `tree.py` what is
in a commit, and `repository.py` the FS; `commits.py` writes.
"""

from __future__ import annotations

from .repository import Hub

__all__ = ["Hub"]
