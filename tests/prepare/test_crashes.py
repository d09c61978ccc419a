"""Crashes: killed workers, a killed run that a later one goes on from, and a commit that is cut off after any step."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, prepare
from fsabs.prepare import PrepareError
from fsabs.prepare.output import Commit, OutputDirectory
from fsabs.prepare.plan import OutputFile, UnitResult
from fsabs.readers import RecordWriter
from fsabs.readers.sharded import verify
from tests.prepare.data import MODEL, assert_refused, digest, plain_loop, raw_files, records_below, write_tree
from tests.servers.hdfs import HdfsCluster

pytestmark = pytest.mark.timeout(180)

FILES = raw_files(40)
LOGGING = """\
import os, time
LOG = {log!r}


def note(name):
    fd = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (name + "\\n").encode())
    os.close(fd)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tree(fsabs.from_url(tmp_path / "raw", create=True), FILES)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def test_a_killed_worker_costs_an_attempt_and_no_record(folder: Path) -> None:
    killed_once = f"""
    if "0020" in filename and not os.path.exists({str(folder / "flag")!r}):
        open({str(folder / "flag")!r}, "w").close()
        os.kill(os.getpid(), 9)
    return"""
    (folder / "model.py").write_text("import os\n" + MODEL.replace("    return", killed_once))
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=2, records_per_file=4)
    assert (folder / "flag").exists()
    assert report.records == 40
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))


def test_a_process_that_is_found_dead_costs_no_attempt(folder: Path) -> None:
    killed_twice = f"""
    begun = len(os.listdir({str(folder / "begun")!r}))
    if begun < 2:
        open({str(folder / "begun")!r} + f"/{{begun}}", "w").close()
        os.kill(os.getpid(), 9)
    return"""
    (folder / "begun").mkdir()
    (folder / "model.py").write_text("import os\n" + MODEL.replace("    return", killed_twice))
    stopped: list[threading.Timer] = []

    def stop(_: object) -> None:
        """Have the first process be given a unit that it does not begin before it is killed."""
        if not stopped:
            (process,) = multiprocessing.active_children()
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
            stopped.append(threading.Timer(1.0, process.kill))
            stopped[0].start()

    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1, progress=stop)
    assert len(list((folder / "begun").iterdir())) == 2
    assert report.records == 40
    stopped[0].join()


def test_a_worker_that_is_always_killed_is_an_error_that_names_the_files(folder: Path) -> None:
    (folder / "model.py").write_text(MODEL.replace("    return", "    import os; os.kill(os.getpid(), 9)\n    return"))
    with pytest.raises(ChildProcessError, match=r"ended 3 times at files '0/0000.jpg' to '6/0034.jpg'$"):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    assert_refused(folder / "out")


def test_units_that_share_a_pool_with_one_that_kills_its_worker(folder: Path) -> None:
    killed = "    if '0039' in filename: import os; os.kill(os.getpid(), 9)\n    return"
    (folder / "model.py").write_text(MODEL.replace("    return", killed))
    with pytest.raises(ChildProcessError, match=r"ended 3 times at files .*'4/0032.jpg' to '5/0012.jpg'"):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=2, records_per_file=4)
    (folder / "raw/4/0039.jpg").unlink()
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=2, records_per_file=4)
    assert report.records == len(records_below(folder / "out")) == 39


def test_ctrl_c_ends_workers_that_never_come_back_to_python(folder: Path) -> None:
    note = f"open({str(folder)!r} + '/pid-%d' % os.getpid(), 'w').close()"
    stuck = f"    {note}; re.match('(a+)+$', 'a' * 64 + 'b')\n    return"
    (folder / "model.py").write_text("import os, re\n" + MODEL.replace("    return", stuck))
    arguments = [*(str(folder / name) for name in ("model.py", "raw", "out")), "local", "--num-workers", "2"]
    command = [sys.executable, "-m", "fsabs", "prepare", *arguments, "--records-per-file", "4"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0) as running:
        end = time.monotonic() + 60
        while len(found := list(folder.glob("pid-*"))) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        error = running.communicate(timeout=60)[1]
    assert running.returncode == 130
    assert error.startswith(b"fsabs: interrupted")
    assert not any(Path("/proc", path.name.removeprefix("pid-")).exists() for path in found)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_after_a_kill_goes_on_where_it_was(folder: Path, earlier: bool) -> None:
    if earlier:
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=2, prefix="old")
    log = folder / "log"
    text = LOGGING.format(log=str(log)) + MODEL.replace(
        "    return", "    note(filename); time.sleep(0.05)\n    return"
    )
    (folder / "model.py").write_text(text)
    program = "import sys; from fsabs import prepare; prepare.run(*sys.argv[1:], num_workers=2, records_per_file=4)"
    command = [sys.executable, "-c", program, *(str(folder / name) for name in ("model.py", "raw", "out"))]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    staging = folder / "out/.fsabs-prepare"
    end = time.monotonic() + 30
    while len(list(staging.glob("job-*/done/0*"))) < 3:
        assert time.monotonic() < end
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.communicate()  # until its workers have ended, too
    units = len(list(staging.glob("job-*/done/0*")))
    assert 3 <= units < 10
    if not earlier:
        assert_refused(folder / "out")
    else:
        assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))
        assert sorted(os.listdir(folder / "out"))[-1].startswith("old-")
    log.unlink()
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=2, records_per_file=4)
    assert report.resumed_files == 4 * units
    assert len(log.read_text().split()) == 40 - 4 * units
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))
    assert not (folder / "out/.fsabs-prepare").exists()


def move_code(folder: Path) -> Path:
    (folder / "elsewhere").mkdir()
    for name in ("model.py", "helper.py", "parts"):
        (folder / name).rename(folder / "elsewhere" / name)
    return folder / "elsewhere" / "model.py"


def change_module(folder: Path) -> None:
    (folder / "parts" / "labels.py").write_text("label = 2")


def change_file(folder: Path) -> None:
    (folder / "raw" / "0" / "0000.jpg").write_bytes(b"new")


CHANGES: dict[str, Callable[[Path], Path | None]] = {
    "nothing": lambda folder: None,
    "place of the code": move_code,
    "module of a package": change_module,
    "file": change_file,
    "option": lambda folder: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_units_of_a_run_that_failed_count_if_nothing_changed(folder: Path, change: str) -> None:
    log, whole = folder / "log", folder / "whole"
    check = f"assert os.path.exists({str(whole)!r}) or len(open({str(log)!r}).readlines()) <= 12"
    text = MODEL.replace("    return", f"    note(filename); {check}\n    return")
    (folder / "parts").mkdir()
    (folder / "parts" / "labels.py").write_text("label = 1")
    (folder / "parts" / "more.py").write_text("def wanted():\n    from .labels import label\n    return label")
    (folder / "helper.py").write_text("from parts.more import wanted")
    imports = "def later():\n    import helper\n\n\n"
    (folder / "model.py").write_text(imports + LOGGING.format(log=str(log)) + text)
    arguments = folder / "model.py", folder / "raw", folder / "out"

    with pytest.raises(PrepareError, match="AssertionError"):
        prepare.run(*arguments, num_workers=1, records_per_file=4)
    done = 4 * len(list(folder.glob("out/.fsabs-prepare/job-*/done/*")))
    assert done == 12
    whole.touch()
    model = CHANGES[change](folder) or arguments[0]
    options: dict[str, Any] = {"compressor": "gzip"} if change == "option" else {}
    report = prepare.run(model, *arguments[1:], num_workers=1, records_per_file=4, **options)
    assert report.resumed_files == (done if change in ("nothing", "place of the code") else 0)
    assert len(records_below(folder / "out")) == 40


def test_an_attempt_that_failed_keeps_no_room(folder: Path) -> None:
    """A unit may have made many files before: where the disk is full, they were what filled it."""
    (folder / "model.py").write_text(
        "def prepare_data_for_a_single_file(filename):\n    yield from [b'x'] * 9\n    raise OSError(28, 'full')\n"
    )
    # One file, thus one unit: others would be killed in the middle, and a later run removes what those leave.
    write_tree(fsabs.from_url(folder / "one", create=True), dict(list(FILES.items())[:1]))
    with pytest.raises(PrepareError, match="full"):
        prepare.run(folder / "model.py", folder / "one", folder / "out", num_workers=1, records_per_file=2)
    assert list(folder.glob("out/.fsabs-prepare/job-*/parts"))
    assert not list(folder.glob("out/.fsabs-prepare/job-*/parts/*"))


# ---- the commit


class Cut(BaseException):
    """The end of the process, as far as the commit knows."""


def before_each_change(monkeypatch: pytest.MonkeyPatch, act: Callable[[str, str], None]) -> None:
    """Have a function run before each change of any FS: its name and its path."""

    def acting(name: str) -> Callable[..., Any]:
        change = getattr(FS, name)

        def call(self: FS, path: str, *arguments: Any, **options: Any) -> Any:
            act(name, path)
            return change(self, path, *arguments, **options)

        return call

    for name in ("rename", "remove", "write_bytes", "makedirs"):
        monkeypatch.setattr(FS, name, acting(name))


def cut_after(steps: int) -> Callable[[str, str], None]:
    """Return what ends the process after so many changes."""
    left = iter(range(steps))

    def act(name: str, path: str) -> None:
        if next(left, None) is None:
            raise Cut

    return act


def staged(output: OutputDirectory, run: str, count: int) -> Commit:
    """Begin a job and write its files; return the commit that is to be made."""
    output.begin(run)
    moves = {}
    for number in range(count):
        path = f"{output.work(run)}/parts/{number:06}"
        with RecordWriter(output.fs, path) as writer:
            writer.write(f"{run} {number}".encode())
        result = UnitResult(number, [OutputFile(path, 1, 1)], 1, 1, [])
        output.fs.write_bytes(f"{output.work(run)}/done/{number:06}", result.to_json())
        moves[path] = f"data-{number:05}-of-{count - 1:05}"
    return Commit(moves, {"run": run, "shards": [{"name": name} for name in moves.values()]})


def state(where: Path) -> str:
    """Return what readers see: `refused`, or the name of the run whose records are there."""
    try:
        records = records_below(where)
    except OSError as exc:
        if exc.errno != errno.EBUSY:
            raise
        for read in (records_below, verify):
            with pytest.raises(OSError, match="fsabs prepare or convert is replacing"):
                read(where)
        return "refused"
    runs = {record.split()[0].decode() for record in records}
    assert len(runs) == 1
    run = runs.pop()
    assert len(records) == {"old": 3, "new": 2, "newer": 4}[run]
    assert json.loads((where / ".fsabs-prepare.json").read_text())["run"] == run
    return run


def test_a_commit_that_is_cut_off_after_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for steps in range(100):
        where = tmp_path / f"{steps}" / "out"
        first = OutputDirectory(where)
        first.commit(staged(first, "old", 3))
        assert state(where) == "old"
        second = OutputDirectory(where)
        commit = staged(second, "new", 2)
        with monkeypatch.context() as patch:
            before_each_change(patch, cut_after(steps))
            try:
                second.commit(commit)
                ended = True
            except Cut:
                ended = False
        seen.append(state(where))
        third = OutputDirectory(where)  # of the same job or another
        third.check()
        third.complete_commit()
        resumed = third.begin("new" if steps % 2 else "newer")
        if seen[-1] == "refused":
            assert state(where) == "new"
            assert not resumed
        third.commit(staged(third, "newer", 4))
        assert state(where) == "newer"
        leftover = sorted(path.name for path in [*where.parent.iterdir(), *where.iterdir()] if path.name[0] == ".")
        assert leftover == [".fsabs-prepare.json"]
        if ended:
            break
    assert ended
    assert [name for at, name in enumerate(seen) if at == 0 or seen[at - 1] != name] == ["old", "refused", "new"]


@pytest.mark.parametrize(("step", "which"), [("rename", 2), ("remove", 1)])
def test_a_run_after_one_that_was_cut_off_in_its_commit_does_nothing_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, which: int
) -> None:
    log = folder / "log"
    (folder / "model.py").write_text(
        LOGGING.format(log=str(log)) + MODEL.replace("    return", "    note(filename)\n    return")
    )
    arguments = folder / "model.py", folder / "raw", folder / "out"
    numbers = itertools.count(1)

    def cut(name: str, path: str) -> None:
        if name == step and "/job-" in path and next(numbers) == which:
            raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        before_each_change(patch, cut)
        prepare.run(*arguments, num_workers=1, records_per_file=8)
    assert len(log.read_text().split()) == 40
    report = prepare.run(*arguments, num_workers=1, records_per_file=8)
    assert (report.files, report.records, len(report.shards)) == (40, 40, 5)
    assert len(log.read_text().split()) == 40
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))
    prepare.run(*arguments, num_workers=1, records_per_file=8)  # there is no commit left
    assert len(log.read_text().split()) == 80


def test_of_two_runs_at_once_the_later_one_commits(tmp_path: Path) -> None:
    first, second = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "out")
    commit = staged(first, "old", 3)
    later = staged(second, "new", 2)
    with pytest.raises(OSError, match="another run has begun"):
        first.commit(commit)
    second.commit(later)
    assert state(tmp_path / "out") == "new"


def test_a_run_whose_output_another_one_has_taken_says_so(folder: Path) -> None:
    def taken(_: object) -> None:
        with contextlib.closing(OutputDirectory(folder / "out")) as output:
            output.begin("other")

    with pytest.raises(OSError, match="another run has begun") as caught:
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1, progress=taken)
    assert caught.value.errno == errno.EBUSY


def test_what_lingers_of_another_job_does_not_count(tmp_path: Path) -> None:
    """A process of a job whose driver was killed goes on while a job with other options is under way."""
    first, second = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "out")
    staged(first, "old", 3)
    assert second.begin("new") == []
    result = UnitResult(1, [OutputFile("nonesuch", 1, 1)], 1, 1, [])
    second.fs.makedirs(f"{first.work('old')}/done")
    second.fs.write_bytes(f"{first.work('old')}/done/000001", result.to_json())
    assert second.done() == []
    assert second.done_units() == set()


def test_replacing_a_directory_on_hdfs(hdfs: HdfsCluster) -> None:
    url = f"{hdfs.url}/prepared/out"
    for run, count in (("old", 3), ("new", 2), ("newer", 4)):
        output = OutputDirectory(url)
        output.check()
        output.commit(staged(output, run, count))
        output.close()
        assert records_below(url) == [f"{run} {number}".encode() for number in range(count)]
        assert [path for path, _, _ in hdfs.ls("/prepared")] == ["/prepared/out"]


def test_a_directory_that_became_someone_elses_is_left_alone(tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path / "out")
    commit = staged(output, "new", 2)
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(FileExistsError, match="precious"):
        output.commit(commit)
    assert sorted(os.listdir(tmp_path / "out")) == [".fsabs-prepare", ".fsabs-publishing", "precious"]


def test_no_old_file_takes_the_place_of_a_new_one_that_is_gone(tmp_path: Path) -> None:
    first, second = OutputDirectory(tmp_path / "out"), OutputDirectory(tmp_path / "out")
    first.commit(staged(first, "old", 3))
    commit = staged(second, "new", 3)
    second.fs.remove(list(commit.moves)[1])
    with pytest.raises(FileNotFoundError, match="gone from the staging directory"):
        second.commit(commit)
    assert state(tmp_path / "out") == "old"
    assert [result.number for result in OutputDirectory(tmp_path / "out").begin("new")] == [0, 2]


def test_what_another_program_put_beside_the_shards_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = folder / "model.py", folder / "raw", folder / "out"
    prepare.run(*arguments, num_workers=1)
    checkpoint = folder / "out" / "ckpt" / "step-900"
    checkpoint.parent.mkdir()
    checkpoint.write_text("weights")
    with pytest.raises(FileExistsError, match="'ckpt/', which no report of fsabs prepare lists"):
        prepare.run(*arguments, num_workers=1, prefix="new")
    assert checkpoint.read_text() == "weights"
    shutil.rmtree(checkpoint.parent)

    def add_after_the_last_check(name: str, path: str) -> None:
        if path.endswith("commit.json") and name == "write_bytes":
            checkpoint.parent.mkdir()
            checkpoint.write_text("weights")
            (folder / "out" / ".note").write_text("hidden")

    before_each_change(monkeypatch, add_after_the_last_check)
    prepare.run(*arguments, num_workers=1, prefix="new")
    assert checkpoint.read_text() == "weights"
    names = sorted(os.listdir(folder / "out"))
    assert names == [".fsabs-prepare.json", ".note", "ckpt", "new-00000-of-00000"]
