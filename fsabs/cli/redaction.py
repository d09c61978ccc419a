"""The one place where what a command prints loses its secrets: output, errors, tracebacks, progress, JSON.

Removed are passwords in URLs and what grants access in their queries (`errors.without_secrets`), and, wherever they
stand in a text, the values of environment variables and of keys of `pfio.ini` whose names say that they are secret.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from .. import errors

# Not compiled here: `re` does that when they are used first, and a help page needs none.
_SECRET_NAME = (
    r"secret|passw|passphrase|token|credential|private|signature|authorization"
    r"|_pwd$|(^|_)(auth|jwt|sas|pat)$|key(_id)?$"
)
_PUBLIC_NAME = r"(_FILE|_PATH|_DIR|_URI|_URL|_ENDPOINT|_SOCK|_PROFILE|_REGION)$"
_VARIABLE = r"\$\w+|\$\{\w+\}"
_SHORTEST = 6  # characters: a shorter value is found in harmless words, too


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable or an option of this name is never shown."""
    secret = re.search(_SECRET_NAME, name, re.IGNORECASE) is not None
    return secret and re.search(_PUBLIC_NAME, name, re.IGNORECASE) is None


def is_variable(written: str) -> bool:
    """Return whether a value of `pfio.ini` is the name of a variable and nothing else."""
    return re.fullmatch(_VARIABLE, written) is not None


def redacted(text: str) -> str:
    """Return `text` with `***` in place of each secret."""
    for value in _secrets():
        if value in text:
            text = text.replace(value, "***")
    return errors.without_secrets(text)


def _secrets() -> list[str]:
    """Return the secret values that this process knows by name, the longest first."""
    found = {value for name, value in os.environ.items() if is_secret_name(name)}
    found |= _configured()
    return sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)


def _configured() -> set[str]:
    """Return the secret values of the configuration; it need not be read if it was not used."""
    config = sys.modules.get("fsabs.config")
    found: set[str] = set()
    if config is None:
        return found
    for name in config.sections():
        try:
            section = config.get_custom_scheme(name) or {}
        except ValueError:  # a section that can't be read: none of its values is used
            continue
        for key, value in section.items():
            if is_secret_name(key):
                found |= _values(config, name, key, str(value))
    return found


def _values(config: Any, section: str, key: str, written: str) -> set[str]:
    """Return a secret as it is written in the file, and as it is used; the name of a variable is no secret."""
    found = set() if is_variable(written) else {written}
    try:
        return found | {str(config.expand(written, section, key))}
    except ValueError:  # a variable that is not set
        return found
