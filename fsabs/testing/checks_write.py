"""Checks of writing: contents, modes, and what a written file can and can't do."""

from __future__ import annotations

import array
import errno
import io
import itertools
import pickle
import time
from collections.abc import Callable

from ..core.fs import FS
from ..core.writing import WRITE_BUFFER_SIZE
from . import expect
from .agreement import check_tree
from .kit import check
from .subject import Subject
from .trees import TREE, noise

_SIZES = (0, 1, WRITE_BUFFER_SIZE - 1, WRITE_BUFFER_SIZE, WRITE_BUFFER_SIZE + 1, 3_000_001)


@check("write-contents", needs=("write",))
def contents_arrive_whole(subject: Subject) -> None:
    files = {f"{way}-{size}": noise(size) for way, size in itertools.product(("once", "pieces", "bytes"), _SIZES)}
    with subject.create() as fs:
        for name, data in files.items():
            if name.startswith("bytes"):
                expect.equal(fs.write_bytes(name, data), len(data), "what write_bytes returns")
                continue
            step = len(data) or 1 if name.startswith("once") else 70_001
            with fs.open(name, "wb") as file:
                for offset in range(0, len(data), step):
                    part = data[offset : offset + step]
                    expect.equal(file.write(part), len(part), "what write returns")
                    expect.equal(file.tell(), offset + len(part), "tell() of a written file")
    expect.equal(subject.files(fs), files, "what was written")


@check("write-contents", needs=("write",))
def anything_with_a_buffer_is_written(subject: Subject) -> None:
    numbers = array.array("H", range(1000))
    with subject.create() as fs:
        with fs.open("mixed", "wb", 16) as file:
            file.write(b"bytes")
            file.write(bytearray(b"bytearray"))
            file.write(memoryview(b"a memoryview")[2:])
            expect.equal(file.write(numbers), 2000, "what write returns for an array of 1000 numbers of 2 bytes")
            file.write(b"")
            file.writelines([b"li", b"nes"])
            expect.raises(TypeError, "writing a str to a binary file", file.write, "text")
        expect.equal(fs.write_bytes("array", numbers), 2000, "what write_bytes returns for the same array")
    expected = b"bytesbytearraymemoryview" + numbers.tobytes() + b"lines"
    expect.equal(subject.files(fs), {"mixed": expected, "array": numbers.tobytes()}, "what was written")


@check("write-contents", needs=("write",))
def what_was_handed_over_may_change_afterwards(subject: Subject) -> None:
    with subject.create() as fs, fs.open("a", "wb") as file:
        small, large = bytearray(b"small"), bytearray(noise(WRITE_BUFFER_SIZE))
        file.write(small)
        file.write(large)
        small[:], large[:] = b"xxxxx", bytes(len(large))
    fs.close()
    expect.equal(subject.files(fs), {"a": b"small" + noise(WRITE_BUFFER_SIZE)}, "what was written from a reused buffer")


@check("write-text", needs=("write",))
def text_is_written_as_textiowrapper_does(subject: Subject) -> None:
    text = "first\nsecond\r\nünïcödé 😀\n" * 3
    files = {}
    with subject.create() as fs:
        for number, (encoding, newline) in enumerate(
            itertools.product(("utf-8", "utf-16", "utf-8-sig"), (None, "", "\n", "\r", "\r\n"))
        ):
            reference = io.BytesIO()
            with io.TextIOWrapper(reference, encoding, newline=newline) as wrapper:
                wrapper.write(text)
                wrapper.flush()
                files[f"{number}.txt"] = reference.getvalue()
            with fs.open(f"{number}.txt", "w", encoding=encoding, newline=newline) as file:
                expect.equal(file.write(text), len(text), "what write of a text returns")
        with fs.open("errors.txt", "wt", encoding="ascii", errors="xmlcharrefreplace") as file:
            print("ü", file=file)
            expect.raises(TypeError, "writing bytes to a text file", file.write, b"bytes")
        with fs.open("xt.txt", "x", 1, encoding="ascii") as file:
            file.writelines(["a\n", "b\n"])
    expect.equal(
        subject.files(fs), {**files, "errors.txt": b"&#252;\n", "xt.txt": b"a\nb\n"}, "texts that were written"
    )


@check("write-file-object", "pickle-writer", "error-attributes", needs=("write",))
def a_written_file_says_what_it_is(subject: Subject) -> None:
    with subject.create() as fs, fs.open("a.txt", "wb") as file:
        expect.equal((file.name, file.mode), (fs.url("a.txt"), "wb"), "the file's name and mode")
        expect.equal((file.readable(), file.writable(), file.seekable()), (False, True, False), "what it can do")
        for call, arguments in ((file.read, ()), (file.readline, ()), (file.seek, (0,)), (file.truncate, ())):
            expect.raises(io.UnsupportedOperation, f"{call.__name__} on a written file", call, *arguments)
        expect.raises(TypeError, "pickling a file that is being written", pickle.dumps, file)
        expect.true("r+" in str(expect.raises(OSError, "seeking", file.seek, 0)), "the error says what to use instead")
        file.write(b"x")
        file.flush()
        with fs.open("text.txt", "w", encoding="utf-16-le") as text:
            text.write("abc")
            expect.equal((text.tell(), text.seekable()), (6, False), "tell() and seekable() of a written text file")
    expect.equal(subject.files(fs), {"a.txt": b"x", "text.txt": b"a\0b\0c\0"}, "what was written")


@check("write-directory", needs=("write",))
def a_path_that_ends_in_a_slash_is_no_file(subject: Subject) -> None:
    with subject.create() as fs:
        for path in ("a/", "a/.", "./a//"):
            for mode in ("wb", "x"):
                expect.os_error(IsADirectoryError, errno.EISDIR, (fs, "a"), fs.open, path, mode)
            expect.os_error(IsADirectoryError, errno.EISDIR, (fs, "a"), fs.write_bytes, path, b"data")
        fs.write_bytes("b", b"data")
    expect.equal(subject.files(fs), {"b": b"data"}, "what is stored")


@check("write-closed", needs=("write",))
def a_written_file_closes_once(subject: Subject) -> None:
    with subject.create() as fs:
        file = fs.open("a.txt", "wb")
        file.write(b"whole")
        file.close()
        file.close()
        expect.equal(file.closed, True, "closed")
        for call, arguments in ((file.write, (b"x",)), (file.tell, ()), (file.writable, ()), (file.__enter__, ())):
            expect.raises(ValueError, f"{call.__name__} on a closed file", call, *arguments)
        file.close()
        text = fs.open("text.txt", "w", encoding="ascii")
        text.write("text")
        text.close()
        text.close()
        expect.raises(ValueError, "writing to a closed text file", text.write, "x")
    expect.equal(subject.files(fs), {"a.txt": b"whole", "text.txt": b"text"}, "what was written")


@check("write-visible", needs=("live", "write"))
def what_is_written_is_there_at_once(subject: Subject) -> None:
    files: dict[str, bytes] = {}
    with subject.make({}) as fs:
        for number in range(5):
            files[f"{number}.bin"] = noise(1000 * number)
            fs.write_bytes(f"{number}.bin", files[f"{number}.bin"])
            check_tree(fs, files)
    expect.equal(subject.files(fs), files, "what was written")


@check("write-parent", needs=("live", "write", "not implied_directories"))
def a_file_needs_its_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for mode in ("w", "wb", "x"):
            expect.os_error(FileNotFoundError, errno.ENOENT, (fs, "no/such.txt"), fs.open, "no/such.txt", mode)
            expect.os_error(NotADirectoryError, errno.ENOTDIR, (fs, "a.txt/x"), fs.open, "a.txt/x", mode)
        expect.os_error(FileNotFoundError, errno.ENOENT, (fs, "no/such"), fs.copy, "a.txt", "no/such")
        expect.equal(fs.exists("no"), False, "whether the directory is there")
    expect.equal(subject.files(fs), TREE, "what is stored, after writing where no directory is")


@check("write-parent", needs=("write", "implied_directories"))
def a_file_brings_its_directory(subject: Subject) -> None:
    files = {"a/b/c.txt": b"deep", "a/d.txt": b"less deep"}
    with subject.create() as fs:
        for name, data in files.items():
            fs.write_bytes(name, data)
        if subject.live:
            check_tree(fs, files)
    expect.equal(subject.files(fs), files, "what was written")


@check("write-directory", needs=("write",))
def the_root_is_no_file(subject: Subject) -> None:
    with subject.create() as fs:
        for path in ("", ".", "a/.."):
            for mode in ("w", "xb"):
                expect.os_error(
                    (IsADirectoryError, FileExistsError), (errno.EISDIR, errno.EEXIST), (fs, path), fs.open, path, mode
                )
        fs.write_bytes("a.txt", b"x")
    expect.equal(subject.files(fs), {"a.txt": b"x"}, "what was written")


@check("write-directory", needs=("live", "write", "not implied_directories"))
def a_directory_is_no_file(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for mode in ("w", "wb"):
            expect.os_error(IsADirectoryError, errno.EISDIR, (fs, "foo"), fs.open, "foo", mode)
        expect.os_error(
            (FileExistsError, IsADirectoryError), (errno.EEXIST, errno.EISDIR), (fs, "foo"), fs.open, "foo", "x"
        )
        check_tree(fs, TREE)


@check("write-modes", needs=("write",))
def modes_that_read_and_write_are_refused(subject: Subject) -> None:
    with subject.create() as fs:
        for mode in ("w+", "w+b", "x+", "a+", "ba+"):
            exc = expect.raises(io.UnsupportedOperation, f"open(mode={mode!r})", fs.open, "a.txt", mode)
            expect.named(exc, f"open(mode={mode!r})")
        for mode in ("ww", "wa", "wr", "xw", "wbt", "W"):
            expect.raises(ValueError, f"open(mode={mode!r})", fs.open, "a.txt", mode)
        for keywords in ({"encoding": "utf-8"}, {"newline": ""}, {"errors": "ignore"}):
            expect.raises(ValueError, f"open(mode='wb', {keywords})", _open, fs, "wb", keywords)
        expect.raises(ValueError, "a text file with no buffer", _open, fs, "w", {"buffering": 0})
        expect.raises(LookupError, "an unknown encoding", _open, fs, "w", {"encoding": "no-such-encoding"})
        expect.raises(ValueError, "an unknown newline", _open, fs, "w", {"newline": "x"})
    expect.equal(subject.contents(fs), {}, "what is stored, after opening in ways that are none")


def _open(fs: FS, mode: str, keywords: dict[str, object]) -> object:
    opener: Callable[..., object] = fs.open
    return opener("a.txt", mode, **keywords)


@check("write-exclusive", needs=("live", "write"))
def x_makes_new_files_only(subject: Subject) -> None:
    with subject.make({"old.txt": b"old"}) as fs:

        def attempt() -> None:
            with fs.open("old.txt", "xb") as file:
                file.write(b"new")

        expect.os_error(FileExistsError, errno.EEXIST, (fs, "old.txt"), attempt)
        with fs.open("new.txt", "xb") as file:
            file.write(b"new")
    expect.equal(subject.files(fs), {"old.txt": b"old", "new.txt": b"new"}, "what is stored")


@check("write-exclusive", "close-raises", needs=("live", "write", "exclusive"))
def x_is_decided_at_close(subject: Subject) -> None:
    with subject.make({}) as fs:
        first, second = fs.open("a.txt", "xb"), fs.open("a.txt", "xb")
        first.write(b"first")
        second.write(b"second")
        second.close()
        expect.os_error(FileExistsError, errno.EEXIST, (fs, "a.txt"), first.close)
        expect.equal(first.closed, True, "a file whose close() raised is closed")
        first.close()
    expect.equal(subject.contents(fs), {"a.txt": b"second"}, "what is stored: the first that was closed, and no more")


@check("write-replace", needs=("live", "write", "replace"))
def w_replaces(subject: Subject) -> None:
    with subject.make({"a.txt": b"old and long"}) as fs:
        for data in (b"new", b"", b"newer, and longer than the old"):
            with fs.open("a.txt", "wb") as file:
                file.write(data)
            check_tree(fs, {"a.txt": data})
        fs.write_bytes("a.txt", b"by write_bytes")
    expect.equal(subject.contents(fs), {"a.txt": b"by write_bytes"}, "what is stored")


@check("write-replace", needs=("live", "write", "replace", "versions"))
def a_new_content_is_a_new_version(subject: Subject) -> None:
    with subject.make({"a.txt": b"12345678"}) as fs:
        seen = {fs.stat("a.txt").version}
        for data in (b"abcdefgh", b"other", b"third"):
            fs.write_bytes("a.txt", data)
            version = fs.stat("a.txt").version
            expect.true(version not in seen, f"a new content has the version of an old one: {version!r}")
            seen.add(version)
            with fs.open("a.txt", "rb") as file:
                expect.equal(file.raw.blob.version, version, "the version of the blob and of the stat")


@check("stat-modified", needs=("live", "write", "last_modified"))
def a_written_file_is_of_now(subject: Subject) -> None:
    with subject.make({}) as fs:
        fs.write_bytes("a.txt", b"x")
        modified = fs.stat("a.txt").last_modified
        expect.true(abs(time.time() - (modified or 0)) < 600, f"a file written at {time.time()} says {modified}")


@check("write-replace", needs=("write", "not replace"))
def w_replaces_nothing(subject: Subject) -> None:
    with subject.create() as fs:
        fs.write_bytes("a.txt", b"first")
        expect.os_error(FileExistsError, errno.EEXIST, (fs, "a.txt"), fs.write_bytes, "a.txt", b"second")
    expect.equal(subject.files(fs), {"a.txt": b"first"}, "what is stored")


@check("append", needs=("live", "append"))
def a_adds_to_the_end(subject: Subject) -> None:
    with subject.make({"old.txt": b"old"}) as fs:
        for mode, name in (("ab", "old.txt"), ("ab", "new.txt")):
            for part in (b", appended", b", and again"):
                size = fs.stat(name).size if fs.exists(name) else 0
                with fs.open(name, mode) as file:
                    expect.equal((file.mode, file.tell()), ("ab", size), "mode and tell() of an appended file")
                    expect.equal(file.write(part), len(part), "what write returns")
                    expect.equal(file.tell(), size + len(part), "tell() when something was appended")
        with fs.open("old.txt", "a", encoding="utf-8", newline="\r\n") as text:
            text.write(" ü\n")
        expect.os_error(IsADirectoryError, errno.EISDIR, (fs, ""), fs.open, "", "ab")
        files = {"old.txt": "old, appended, and again ü\r\n".encode(), "new.txt": b", appended, and again"}
        check_tree(fs, files)
    expect.equal(subject.files(fs), files, "what is stored")


@check("append", needs=("live", "append"))
def text_is_appended_with_one_mark_at_most(subject: Subject) -> None:
    encodings = ("utf-8-sig", "utf-16", "utf-8")
    with subject.make({f"old-{encoding}": "old".encode(encoding) for encoding in encodings}) as fs:
        for kind, encoding in itertools.product(("old", "new"), encodings):
            with fs.open(f"{kind}-{encoding}", "a", encoding=encoding) as file:
                expect.equal(file.tell(), len("old".encode(encoding)) if kind == "old" else 0, f"tell() of {encoding}")
                file.write("added")
            with fs.open(f"nothing-{encoding}", "a", encoding=encoding):
                pass
            with fs.open("escaped", "a", encoding="utf-8-sig", errors="surrogateescape") as file:
                file.write("\udcff")
    expected = {f"new-{encoding}": "added".encode(encoding) for encoding in encodings}
    expected |= {f"old-{encoding}": "oldadded".encode(encoding) for encoding in encodings}
    expected |= {f"nothing-{encoding}": b"" for encoding in encodings}
    expected["escaped"] = b"\xef\xbb\xbf" + b"\xff" * 6
    expect.equal(subject.files(fs), expected, "what is stored")


@check("append", needs=("live", "append"))
def two_who_append_lose_nothing(subject: Subject) -> None:
    """A store may have one writer at a time, and refuse the second."""
    with subject.make({"log": b"old"}) as fs:
        first = fs.open("log", "ab")
        first.write(b"1")
        added = {b"1"}
        try:
            second = fs.open("log", "ab")
        except OSError as exc:
            expect.named(exc, "a second writer")
        else:
            second.write(b"2")
            second.close()
            added.add(b"2")
        first.close()
        found = fs.read_bytes("log")
    expect.true(found in {b"old" + b"".join(order) for order in itertools.permutations(added)}, f"there is {found!r}")


@check("append", needs=("live", "append"))
def appending_never_loses_the_old(subject: Subject) -> None:
    class Mine(Exception):
        pass

    def fail() -> None:
        with fs.open("old.txt", "ab") as file:
            file.write(b"appended")
            raise Mine

    with subject.make({"old.txt": b"old"}) as fs:
        expect.raises(Mine, "an exception in the with block", fail)
    found = subject.files(fs)
    expect.true(
        b"oldappended".startswith(found["old.txt"]) and len(found["old.txt"]) >= 3, f"what is stored: {found!r}"
    )


@check("update", needs=("live", "update"))
def r_plus_changes_in_place(subject: Subject) -> None:
    with subject.make({"a.txt": b"0123456789", "b.txt": b"one\ntwo\n"}) as fs:
        with fs.open("a.txt", "r+b") as file:
            expect.equal((file.readable(), file.writable(), file.seekable()), (True, True, True), "what r+ can do")
            expect.equal(file.read(3), b"012", "what r+ reads")
            file.seek(5)
            file.write(b"XY")
            file.seek(0)
            expect.equal(file.read(), b"01234XY789", "what r+ reads of what it wrote")
            file.write(b"end")
        with fs.open("b.txt", "r+", encoding="ascii") as text:
            expect.equal(text.readline(), "one\n", "what r+ reads of a text")
        expect.os_error(FileNotFoundError, errno.ENOENT, (fs, "no such"), fs.open, "no such", "r+b")
        expect.os_error(IsADirectoryError, errno.EISDIR, (fs, ""), fs.open, "", "r+b")
    expect.equal(subject.files(fs), {"a.txt": b"01234XY789end", "b.txt": b"one\ntwo\n"}, "what is stored")
