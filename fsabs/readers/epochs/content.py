"""The identity of what an epoch's order follows from, as states have it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.base import ShardContent

_GROUPS = 16  # in the digests of a state: the number of shards, or groups of them, that can be distinguished


class OrderContent:
    """The shards and settings that the orders of epochs follow from."""

    def __init__(self, shards: Sequence[tuple[int, int, ShardContent]], settings: Sequence[Any]) -> None:
        """`shards`: the first record, the count and the content of each."""
        self._shards = list(shards)
        self._settings = list(settings)
        self.fingerprint = self.fingerprint_of(len(self._shards))

    def fingerprint_of(self, shards: int) -> str:
        """Return the fingerprint of the first so many shards."""
        return digest([self._shards[:shards], self._settings], 8)

    def described(self, shards: int) -> dict[str, Any]:
        """Return what a state says of the content, of the first so many shards."""
        group = max(1, -(-shards // _GROUPS))
        digests = [digest(self._shards[at : min(at + group, shards)], 2) for at in range(0, shards, group)]
        return {
            "fingerprint": self.fingerprint_of(shards),
            "settings": self._settings,
            "shards": shards,
            "digests": "".join(digests),
        }

    def check(self, content: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a state's content is another one; it names the first shard that differs.

        Shards may have been added after those that the state knows.
        """
        if "fingerprint" not in content:
            raise ValueError("the state is that of a mixture")
        if list(content["settings"]) != self._settings:
            raise ValueError(
                "the state is of another seed, shuffle (block_size, buffer_size, window, chunk_bytes) or kind of "
                f"windows (sequence_length, overlap): {content['settings']}, not {self._settings}"
            )
        known = content["shards"]
        if known <= len(self._shards) and content["fingerprint"] == self.fingerprint_of(known):
            return
        raise ValueError(f"the state is of other shards: {self._difference(known, content['digests'])}")

    def _difference(self, known: int, digests: str) -> str:
        group = max(1, -(-known // _GROUPS))
        for at in range(0, min(known, len(self._shards)), group):
            place = 4 * (at // group)
            own = self._shards[at : min(at + group, known)]
            if digests[place : place + 4] != digest(own, 2):
                names = [content.name for _, _, content in own]
                one = names[0] if len(names) == 1 else f"one of {names[0]} to {names[-1]}"
                return f"the content of {one} differs"
        return f"of {known}, and there are {len(self._shards)}"


def digest(value: Any, size: int) -> str:
    """Return a digest of plain data, in twice as many hexadecimal digits as `size`."""
    described = json.dumps(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(described, digest_size=size).hexdigest()
