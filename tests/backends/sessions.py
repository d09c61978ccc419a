"""Sessions of botocore as users make them, but that share the descriptions of AWS's services.

These take 25 MB in each session, and a client that fsabs shares keeps its session.
"""

from __future__ import annotations

from typing import Any

import botocore.session

_descriptions = botocore.session.get_session().get_component("data_loader")


def core_session() -> Any:
    """A new session of botocore."""
    session = botocore.session.get_session()
    _descriptions.search_paths[:] = dict.fromkeys(_descriptions.search_paths)  # each session of boto3 adds its own
    session.register_component("data_loader", _descriptions)
    return session
