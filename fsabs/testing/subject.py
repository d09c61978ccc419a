"""The interface that an implementer writes: `Subject`, one FS under test, and access to its storage by other means.

A check sets its tree up and looks at what came of it through the subject's side channel, never through the FS that is
being tested: a `write` and a `read` that are wrong in the same way would otherwise agree.
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ..core.fs import FS, Capabilities

F = TypeVar("F", bound=FS)
Files = Mapping[str, bytes]


class Subject(abc.ABC):
    """One FS under test, and its side channel.

    A *live* FS (a store, a layer over one) reads what it has just written. A container is not live: an archive is read,
    or it is written; `make` then gives an FS that reads, and `create` one that writes.
    """

    live: bool = True
    """Whether what `create` gives reads what it has written, at once."""
    shared: bool = True
    """Whether a process that is started anew finds in the store what is there; False for one in a process's memory."""
    timeout: float = 20.0
    """Seconds that a child process may take with a few files before it is taken to hang."""
    refused_characters: str = ""
    """Characters that the store can't have in a name."""

    @functools.cached_property
    def capabilities(self) -> Capabilities:
        """The capabilities of this subject's FS objects: for a container, of reading and writing together."""
        made, created = self.make({}), self.create()
        try:
            return Capabilities(
                *(one or other for one, other in zip(made.capabilities, created.capabilities, strict=True))
            )
        finally:
            made.close()
            created.close()

    @abc.abstractmethod
    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """A new FS that holds this tree and nothing else, put there by the side channel.

        `files` are contents by key; `directories` are keys, wanted even where they are empty. Directories above what is
        named are made, too. Give the FS through `place`, so that `contents` knows where to look.
        """

    def create(self) -> FS:
        """A new, empty FS to write to."""
        return self.make({})

    @abc.abstractmethod
    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files that are really stored, read by the side channel.

        Files by key; a directory's key ends in `/`, and its content is empty. Leftovers of half-written files belong to
        it. Where a container's file isn't there at all, there is nothing: an empty dict.
        """

    def hidden(self, name: str) -> bool:
        """Return whether a listing leaves out what is stored under `name`, the last segment of a key."""
        return False

    def reopen(self, url: str) -> FS | None:
        """The FS at a URL that an FS of this subject gave; None where nothing answers to such URLs.

        Override this where `from_url` needs options.
        """
        from ..urls.opening import from_url

        return from_url(url)

    def close(self) -> None:  # noqa: B027 - nothing to free is a good answer
        """Throw away what was made, all of it."""

    # ---- for implementers and checks; nothing to override

    def place(self, fs: F, location: str) -> F:
        """Note that `fs` lies at `location`, which is what `stored` takes; returns `fs`."""
        self._places[fs] = location
        return fs

    def location(self, fs: FS) -> str:
        """Return the location of an FS that `make` or `create` returned."""
        return self._places[fs]

    def contents(self, where: FS | str) -> dict[str, bytes]:
        """Return the files that are really stored at an FS or a location, hidden leftovers included."""
        return self.stored(where if isinstance(where, str) else self.location(where))

    def files(self, where: FS | str) -> dict[str, bytes]:
        """The files that are stored under names that listings show."""
        return {key: data for key, data in self.contents(where).items() if not key.endswith("/") and self._shown(key)}

    def directories(self, where: FS | str) -> set[str]:
        """The keys of the directories that are stored as such."""
        return {key[:-1] for key in self.contents(where) if key.endswith("/") and self._shown(key[:-1])}

    def _shown(self, key: str) -> bool:
        return not any(self.hidden(name) for name in key.split("/"))

    @functools.cached_property
    def _places(self) -> weakref.WeakKeyDictionary[FS, str]:
        return weakref.WeakKeyDictionary()
