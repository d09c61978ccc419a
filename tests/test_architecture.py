"""The ways of calls that docs/architecture.md draws are those that Python takes. `python -m ...` writes them anew."""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import fsabs
from fsabs import identity
from fsabs.cache import CachedFS

pytestmark = pytest.mark.quick

PACKAGE = Path(fsabs.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- walks: begin (python -m tests.test_architecture writes what is below) -->", "<!-- walks: end -->"


def walk(call: Callable[[], object]) -> list[str]:
    """Return an outline of the package's functions that a call goes through when it has been made before."""
    call()
    return min((traced(call) for _ in range(3)), key=len)  # some count or sweep once in a second


def traced(call: Callable[[], object]) -> list[str]:
    """Return the outline of one call."""
    lines: list[str] = []
    stack: list[bool] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call":
            # A comprehension is a function up to Python 3.11 only.
            inside = code.co_filename.startswith(f"{PACKAGE}/") and not code.co_name.startswith("<")
            if inside:
                module = Path(code.co_filename).relative_to(PACKAGE)
                lines.append(f"{'  ' * sum(stack)}{code.co_qualname}  ({module})")
            stack.append(inside)
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(profile)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    del result
    return lines


def walks(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each way, and its outline."""
    (folder / "a.bin").write_bytes(b"a" * 1000)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("x.bin", b"x" * 100)
        archive.writestr("y.bin", b"y" * 100)
    with zipfile.ZipFile(folder / "outer.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    time.sleep(2 * identity.TICK)  # a cache takes no file that may still change within a tick of the clock
    local = fsabs.from_url(folder)
    nested = fsabs.from_url(folder / "outer.zip" / "inner.zip")
    cached = CachedFS(local, str(folder / "cache"), min_free=0, memory_bytes=10**8, check_interval=3600)
    opened = []
    yield "Opening a local file, `fs.open(path, 'rb')`", walk(lambda: opened.append(local.open("a.bin", "rb")))
    yield "Reading from it, `file.read(100)`", walk(lambda: opened[0].read(100))
    yield "A file of a zip in a zip, `fs.read_bytes(path)`", walk(lambda: nested.read_bytes("x.bin"))
    yield "A batch of it, `list(fs.read_many(paths))`", walk(lambda: list(nested.read_many(["x.bin", "y.bin"])))
    yield "A hit of a cache, `fs.read_bytes(path)`", walk(lambda: cached.read_bytes("a.bin"))
    yield "Writing a file, `fs.write_bytes(path, data)`", walk(lambda: local.write_bytes("b.bin", b"b"))


def drawn() -> str:
    """Return the generated part of the page."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [
            f"### {title}\n\n{len(lines)} calls:\n\n```text\n" + "\n".join(lines) + "\n```"
            for title, lines in walks(Path(folder))
        ]
    return "\n\n".join(parts)


@pytest.mark.filterwarnings("ignore:a cache around local files")
def test_the_page_draws_what_is_called() -> None:
    found = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert found == drawn()


def test_the_modules_of_the_page_are_there() -> None:
    table = PAGE.read_text().partition("## The package")[2].partition("## The way")[0]
    names = re.findall(r"`([a-z0-9_]+(?:\.py|/))`", table)
    assert len(names) > 20
    assert [name for name in names if not (PACKAGE / name).exists()] == []


if __name__ == "__main__":
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{drawn()}\n\n{END}{rest.partition(END)[2]}")
