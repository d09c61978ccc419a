"""The last look at what a command prints: secrets that this process knows by their values are replaced by `***`.

They are the values of environment variables whose names say so, and what `fsabs.redaction` hides of `pfio.ini`, but for
plain words under other names: those are parts of paths, too. URLs lose what it hides of them.
"""

from __future__ import annotations

import os
import re
import sys

from ..core import redaction

# Not compiled here: `re` does that when they are used first, and a help page needs none.
_SECRET = r"SECRET|PASS|PWD|TOKEN|CREDENTIAL|CONNECTION_STRING|PRIVATE|SIGNATURE|AUTH|JWT|(^|_)(SAS|PAT)$|KEY(_ID)?$"
_PUBLIC = r"^(OLD)?PWD$|_(FILE|PATH|DIR|URI|URL|ENDPOINT|SOCK|PROFILE|REGION)$"
_WORDS = r"[A-Za-z]+([ _./-]+[A-Za-z0-9]*)*"
_SHORTEST = 6  # characters: a shorter value is found in harmless words, too


def redacted(text: str) -> str:
    """Return `text` with `***` in place of each secret."""
    for value in _secrets():
        if value in text:
            text = text.replace(value, redaction.HIDDEN)
    return redaction.without_secrets(text)


def _secrets() -> list[str]:
    """Return the secret values that this process knows, the longest first."""
    found: set[str] = set()
    for name, value in os.environ.items():
        if _says_so(name):
            found.add(value)
    if (config := sys.modules.get("fsabs.urls.config")) is not None:  # else it was not used
        for name, value in config.values():
            texts = redaction.secrets_of(name, value)
            found |= texts if _says_so(name) else {text for text in texts if not re.fullmatch(_WORDS, text)}
    return sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)


def _says_so(name: str) -> bool:
    secret, public = re.search(_SECRET, name, re.IGNORECASE), re.search(_PUBLIC, name, re.IGNORECASE)
    return secret is not None and public is None
