"""Data preparation in processes: every form of input, function and record against a plain loop; bad input; reports."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fsabs
from fsabs import FileStat, Memory, StaleFileError, manifest, prepare
from fsabs.cli import main
from fsabs.core.blobs import Blob
from fsabs.prepare import FeatureColumn, ModelError, PrepareError, PrepareProgress, PrepareReport, work
from fsabs.prepare.inputs import InputFile, InputRoot, list_files
from fsabs.prepare.model import Model, ModelSource, RecordError
from fsabs.prepare.plan import OutputFormat, PrepareJob, Unit, UnitResult
from fsabs.readers import Index, decode
from tests.prepare.data import (
    MODEL,
    assert_refused,
    digest,
    plain_loop,
    raw_files,
    records_below,
    visible,
    write_tree,
    zipped,
)
from tests.servers.moto import MotoServer
from tests.users import ALICE, as_user, needs_root, shared_folder

pytestmark = pytest.mark.timeout(180)

FILES = raw_files()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`model.py` and `raw`, a tree of files."""
    (tmp_path / "model.py").write_text(MODEL)
    write_tree(fsabs.from_url(tmp_path / "raw", create=True), FILES)
    return tmp_path


def contents(where: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in where.iterdir() if not path.name.startswith(".")}


def test_the_records_are_those_of_a_plain_loop(folder: Path) -> None:
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=3, records_per_file=7)
    records = records_below(folder / "out")
    assert digest(records) == digest(plain_loop(FILES))
    assert len(records) == 60
    names = sorted(contents(folder / "out"))
    assert names == [f"data-{number:05}-of-00008" for number in range(9)]
    assert [(shard.name, shard.records) for shard in report.shards] == [(name, 7) for name in names[:-1]] + [
        (names[-1], 4)
    ]
    assert (report.files, report.records, report.failures, report.resumed_files) == (60, 60, (), 0)
    assert report.input_bytes == sum(len(FILES[path]) for path in visible(FILES))
    assert report.output_bytes == sum(map(len, contents(folder / "out").values()))
    assert PrepareReport.from_json((folder / "out" / ".fsabs-prepare.json").read_bytes()) == report
    assert sorted(path.name for path in folder.iterdir()) == ["model.py", "out", "raw"]


def test_the_output_does_not_depend_on_the_number_of_workers(folder: Path) -> None:
    for workers in (1, 4):
        prepare.run(
            folder / "model.py", folder / "raw", folder / f"out{workers}", num_workers=workers, records_per_file=5
        )
    assert contents(folder / "out1") == contents(folder / "out4")


FORMS: dict[str, tuple[str, Callable[[str, bytes], list[object]]]] = {
    "filename": (
        "def prepare_data_for_a_single_file(filename):\n"
        "    return filename.split('/')[-2], open(filename, 'rb').read()",
        lambda path, data: [(path.split("/")[-2], data)],
    ),
    "iterator": (
        "def prepare_data_for_a_single_file(file, filename):\n    for byte in file.read(3): yield {'byte': byte}",
        lambda path, data: [{"byte": byte} for byte in data[:3]],
    ),
    "list of none, one or two": (
        "def prepare_data_for_a_single_file(file, filename):\n    return [(byte,) for byte in file.read()[1:3]]",
        lambda path, data: [(byte,) for byte in data[1:3]],
    ),
    "array": (
        "import numpy\ndef prepare_data_for_a_single_file(file, filename):\n"
        "    return numpy.frombuffer(file.read(), 'u1')",
        lambda path, data: [np.frombuffer(data, "u1")],
    ),
}


@pytest.mark.parametrize(
    ("form", "source"),
    [
        ("filename", "raw"),
        ("filename", "raw.zip"),
        ("iterator", "raw"),
        ("array", "raw.zip"),
        ("list of none, one or two", "raw.tar.gz"),
    ],
)
def test_forms_of_functions_over_trees_and_archives(folder: Path, form: str, source: str) -> None:
    text, expected = FORMS[form]
    (folder / "model.py").write_text(text)
    (folder / "raw.zip").write_bytes(zipped(FILES))
    with tarfile.open(folder / "raw.tar.gz", "w:gz") as archive:
        archive.add(folder / "raw", ".")
    prepare.run(folder / "model.py", folder / source, folder / "out", num_workers=1)
    found = [decode(record) for record in records_below(folder / "out")]
    wanted = [record for path in visible(FILES) for record in expected(path, FILES[path])]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_equal(one, other)


def test_bytes_are_written_as_they_are(folder: Path) -> None:
    (folder / "model.py").write_text("def prepare_data_for_a_single_file(f, name):\n    yield f.read()\n    yield b''")
    prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1, compressor="none")
    assert records_below(folder / "out") == [part for path in visible(FILES) for part in (FILES[path], b"")]


def test_a_pattern_names_archives_and_directories(folder: Path) -> None:
    half = dict(list(FILES.items())[:30])
    (folder / "a.zip").write_bytes(zipped(half))
    (folder / "b.zip").write_bytes(zipped(FILES))
    report = prepare.run(folder / "model.py", f"{folder}/*.zip", folder / "out", num_workers=2, records_per_file=8)
    assert digest(records_below(folder / "out")) == digest(plain_loop(half) + plain_loop(FILES))
    assert report.files == 90


def test_a_manifest_has_the_files_and_pins_them(folder: Path) -> None:
    with fsabs.from_url(folder / "raw") as fs:
        manifest.create(fs, folder / "raw.jsonl", versions=False, digest="sha256")
    (folder / "raw" / "3" / "added.jpg").write_bytes(b"not in the manifest")
    arguments = folder / "model.py", folder / "raw", folder / "out"
    report = prepare.run(*arguments, manifest=folder / "raw.jsonl", num_workers=1)
    assert report.files == 60
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))
    path = folder / "raw" / "3" / "0010.jpg"
    path.write_bytes(bytes(len(FILES["3/0010.jpg"])))
    with pytest.raises(StaleFileError, match=r"0010\.jpg"):
        prepare.run(*arguments, manifest=folder / "raw.jsonl", num_workers=1, on_error="skip", prefix="new")
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))


def test_a_zip_on_s3_becomes_shards_on_s3(folder: Path, moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    moto.create_bucket("prepared")
    monkeypatch.setenv("S3_ENDPOINT", moto.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", moto.region)
    with fsabs.from_url("s3://prepared/in") as fs:
        fs.write_bytes("raw.zip", zipped(FILES))
    for per_file in (20, 30):  # the second run replaces the first one's files
        prepare.run(
            folder / "model.py",
            "s3://prepared/in/raw.zip",
            "s3://prepared/out",
            num_workers=2,
            records_per_file=per_file,
            validate=True,
        )
        assert digest(records_below("s3://prepared/out")) == digest(plain_loop(FILES))
        with fsabs.from_url("s3://prepared/out") as fs:
            last = -(-60 // per_file) - 1
            names = [f"data-{number:05}-of-{last:05}" for number in range(last + 1)]
            assert sorted(fs.list("", recursive=True)) == [".fsabs-prepare.json", *names]


# ---- what is wrong


WRONG_MODELS = {
    "import nonesuch_module": "can't be imported: ModuleNotFoundError: No module named 'nonesuch_module' (line 1",
    "def f(:": "can't be imported: SyntaxError",
    "raise SystemExit(3)": "can't be imported: SystemExit: 3",
    "x = 1": "defines no function prepare_data_for_a_single_file",
    "def prepare_data_for_a_single_file(): pass": "must take (filename) or (file_object, filename)",
    "def prepare_data_for_a_single_file(a, b, c): pass": "(a, b, c) must take",
    "def prepare_data_for_a_single_file(f): pass\nfeature_columns = [('a', 'nonesuch')]": "nonesuch",
    "def prepare_data_for_a_single_file(f): pass\nfeature_columns = [('a', 'i4'), ('a', 'i4')]": "twice",
    "def prepare_data_for_a_single_file(f): pass\ndef feature_columns(): return 1 / 0": "ZeroDivisionError",
}


@pytest.mark.parametrize("text", WRONG_MODELS)
def test_a_model_file_that_is_wrong(folder: Path, text: str) -> None:
    (folder / "model.py").write_text(text)
    with pytest.raises(ModelError) as caught:
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    assert WRONG_MODELS[text] in str(caught.value)
    assert str(folder / "model.py") in str(caught.value)
    assert not (folder / "out").exists()


COLUMNS = "feature_columns = {'image': ('uint8', (2, None)), 'label': 'int64', 'word': 'str'}\nimport numpy as np\n"
GOOD = "(np.zeros((2, 5), 'u1'), 7, 'cat')"
WRONG_RECORDS = {
    "None": "returned None",
    "3": "returned int",
    "[None]": "record 0 is NoneType",
    "1 / 0": "raised ZeroDivisionError: division by zero (line 4 of model.py)",
    f"[{GOOD}, {GOOD}[:2]]": "record 1 has 2 values, and there are 3 feature columns",
    "(np.zeros((2, 5), 'u1'), 7.5, 'cat')": "record 0, column 'label': float does not fit the dtype int64",
    "(np.zeros((2, 5), 'i1'), 7, 'cat')": "record 0, column 'image': the dtype is int8, not uint8",
    "(np.zeros((3, 5), 'u1'), 7, 'cat')": "record 0, column 'image': the shape is (3, 5), not (2, None)",
    "(np.zeros((2, 5), 'u1'), 7, b'cat')": "column 'word': bytes does not fit the dtype str",
    "{'image': 1, 'label': 2, 'wrod': 'cat'}": "record 0 lacks word and has wrod, which is no feature column",
    "b'bytes'": "record 0 is bytes, not a tuple or dict of the feature columns",
}


@pytest.mark.parametrize("result", WRONG_RECORDS)
def test_records_that_do_not_fit_the_columns(result: str) -> None:
    text = f"{COLUMNS}def prepare_data_for_a_single_file(file, name):\n    return {result}\n"
    with pytest.raises(RecordError) as caught:
        list(Model(ModelSource(text, "/nonesuch/model.py")).records(None, "name"))
    assert WRONG_RECORDS[result] in str(caught.value)


def test_columns_are_declared_in_several_ways() -> None:
    for columns in (
        "{'image': ('float32', (2, 3))}",
        "[('image', 'float32', (2, 3))]",
        "[FeatureColumn('image', 'f4', (2, 3))]",
        "[Numeric()]",
        "lambda: [Numeric]",
    ):
        text = (
            "import numpy\nfrom fsabs.prepare import FeatureColumn\n"
            "class Numeric:  # as TensorFlow's\n    key, shape, dtype = 'image', (2, 3), numpy.float32\n"
            f"feature_columns = {columns}\ndef prepare_data_for_a_single_file(f): return f\n"
        )
        assert Model(ModelSource(text, "model.py")).columns == (FeatureColumn("image", "float32", (2, 3)),)


def test_a_file_that_fails_is_named_or_left_out(folder: Path) -> None:
    failing = MODEL.replace("return", "assert '0010' not in filename, 'no label'\n    return")
    (folder / "model.py").write_text(failing)
    with pytest.raises(PrepareError) as caught:
        prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1)
    raised = "prepare_data_for_a_single_file raised AssertionError: no label (line 7 of model.py)"
    assert str(caught.value) == f"{folder}/raw/3/0010.jpg: {raised}"
    assert_refused(folder / "out")
    (folder / "only").mkdir()
    (folder / "only" / "0010").write_bytes(b"x")
    with pytest.raises(PrepareError, match=rf"no records; the first reason: {folder}/only/0010: prepare_data_for_a"):
        prepare.run(folder / "model.py", folder / "only", folder / "out", num_workers=1, on_error="skip")
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", num_workers=1, on_error="skip")
    assert [tuple(failure) for failure in report.failures] == [(f"{folder}/raw/3/0010.jpg", raised)]
    assert digest(records_below(folder / "out")) == digest(
        plain_loop({path: data for path, data in FILES.items() if "0010" not in path})
    )


def test_empty_and_damaged_files(folder: Path) -> None:
    data = bytearray(zipped({"1/a": b"", "1/b": b"good", "2/c": b"damaged", "2/d": b"good"}))
    data[data.index(b"damaged")] ^= 1
    (folder / "raw.zip").write_bytes(data)
    with pytest.raises(PrepareError, match=r"1 of 4 files are empty: file://.*/raw\.zip/1/a"):
        prepare.run(folder / "model.py", folder / "raw.zip", folder / "out", num_workers=1)
    report = prepare.run(folder / "model.py", folder / "raw.zip", folder / "out", num_workers=1, on_error="skip")
    assert [failure.file[-9:] for failure in report.failures] == ["w.zip/1/a", "w.zip/2/c"]
    assert [decode(record)[0].tobytes() for record in records_below(folder / "out")] == [b"good", b"good"]


def test_directories_that_can_not_be_used(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "foreign").mkdir()
    (folder / "foreign" / "precious").write_text("x")
    (folder / "link").symlink_to(folder / "raw")
    model, raw = folder / "model.py", folder / "raw"
    for source, target, kind, text in (
        (folder / "empty", folder / "out", FileNotFoundError, "no files"),
        (folder / "nonesuch", folder / "out", FileNotFoundError, "nonesuch"),
        (raw, folder / "foreign", FileExistsError, "has 'precious', which no report of fsabs prepare lists"),
        (raw, model, NotADirectoryError, "is a file"),
        (raw, raw / "out", OSError, "contain each other"),
        (raw, folder, OSError, "contain each other"),
        (raw, folder / "link" / "out", OSError, "contain each other"),
        (raw, "memory://out", OSError, "one process"),
        (raw, f"{folder}/out.zip", OSError, "archive"),
    ):
        with pytest.raises(kind, match=text):
            prepare.run(model, source, target, num_workers=1)
    assert sorted(path.name for path in folder.iterdir()) == ["empty", "foreign", "link", "model.py", "raw"]


def test_the_root_of_a_scheme_and_a_home_are_outputs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = f"[corp]\nscheme = file\nprefix = {folder}/corp\n[dc]\npfs = file://{folder}/dc\nusername = me\n"
    (folder / "pfio.ini").write_text(stores)
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(folder / "pfio.ini"))
    for output, where in (
        ("corp://", "corp"),
        ("/pfs/dc/home/me", "dc/home/me"),
        ("/pfs/dc/home/me/out/", "dc/home/me/out"),
    ):
        (folder / where).mkdir(parents=True)
        prepare.run(folder / "model.py", folder / "raw", output, num_workers=1)
        assert digest(records_below(folder / where)) == digest(plain_loop(FILES))
        shutil.rmtree(folder / where)


@needs_root
def test_the_output_is_not_in_the_input_by_a_mount(folder: Path) -> None:
    (folder / "mounted").mkdir()
    before = sorted(folder.joinpath("raw").rglob("*"))
    if subprocess.run(["mount", "--bind", folder / "raw", folder / "mounted"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        with pytest.raises(OSError, match="contain each other"):
            prepare.run(folder / "model.py", folder / "raw", folder / "mounted" / "out", num_workers=1)
    finally:
        subprocess.run(["umount", folder / "mounted"], check=True)
    assert sorted(folder.joinpath("raw").rglob("*")) == before


@needs_root
def test_a_staging_directory_of_another_user_is_not_trusted(folder: Path) -> None:
    out = shared_folder()
    (out / "own").write_bytes(b"own")
    staging = out / ".fsabs-prepare"

    def plant() -> None:
        os.umask(0)
        staging.mkdir()
        commit = {"moves": {"own": "../gone"}, "report": {"shards": [{"name": "own"}]}}
        (staging / "commit.json").write_text(json.dumps(commit))

    as_user(ALICE, plant)
    with pytest.raises(PermissionError, match="another user"):
        prepare.run(folder / "model.py", folder / "raw", out, num_workers=1)
    os.chown(staging, 0, 0)
    with pytest.raises(PermissionError, match="others may write"):
        prepare.run(folder / "model.py", folder / "raw", out, num_workers=1)
    assert sorted(os.listdir(out)) == [".fsabs-prepare", "own"]
    shutil.rmtree(staging)
    (out / "own").unlink()
    prepare.run(folder / "model.py", folder / "raw", out, num_workers=1)
    assert digest(records_below(out)) == digest(plain_loop(FILES))


def test_options_that_make_no_sense(folder: Path) -> None:
    wrong: dict[str, Any] = {
        "num_workers": 0,
        "records_per_file": 0,
        "prefix": "a/b",
        "compressor": "lz4",
        "on_error": "ignore",
        "tokens": "float32",
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            prepare.run(folder / "model.py", folder / "raw", folder / "out", **{name: value})


# ---- the command


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["prepare", str(folder / "model.py"), str(folder / "raw"), str(folder / "out"), "local"]
    chunks = ["--compressor", "none", "--max-chunk-bytes", "1000"]
    assert main([*arguments, "--num-workers", "2", "--records-per-file", "30", "--json", *chunks]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["files"], report["records"], len(report["shards"])) == (60, 60, 2)
    assert Index(folder / "out/data-00000-of-00001").chunks > 10
    assert main([*arguments, "--num_workers", "1", "--prefix", "train"]) == 0
    assert f"file://{folder}/out: 60 records" in capsys.readouterr().out
    assert [*contents(folder / "out")] == ["train-00000-of-00000"]
    assert main([*arguments, "2"]) == 0  # <running_mode> <other arguments>
    assert [*contents(folder / "out")] == ["data-00000-of-00000"]
    assert main([*arguments, "2", "--num-workers=2"]) == 2
    assert "not both" in capsys.readouterr().err
    arguments[1] = str(folder / "nonesuch.py")
    assert main(arguments) == 1
    assert "nonesuch.py" in capsys.readouterr().err


def test_what_the_function_prints_is_not_the_output_of_the_command(folder: Path) -> None:
    (folder / "model.py").write_text(MODEL.replace("    return", "    print('hello')\n    return"))
    arguments = ["prepare", *(str(folder / name) for name in ("model.py", "raw", "out")), "local", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "fsabs", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout)["records"] == 60
    assert done.stderr.count(b"hello") == 60


def test_progress_reaches_the_end(folder: Path) -> None:
    seen: list[PrepareProgress] = []
    prepare.run(
        folder / "model.py", folder / "raw", folder / "out", num_workers=2, records_per_file=6, progress=seen.append
    )
    assert (seen[0].files, seen[0].seconds_left) == (0, None)
    assert "unknown" in str(seen[0])
    assert [state.files for state in seen] == sorted(state.files for state in seen)
    last = seen[-1]
    assert (last.files, last.records, last.bytes) == (60, 60, last.total_bytes)
    assert last.files_per_second > 0
    assert last.seconds_left == 0
    assert str(last).startswith("60 of 60 files, 60 records, 0 skipped, ")


def test_no_process_imports_from_the_working_directory(folder: Path) -> None:
    here = folder / "here"
    here.mkdir()
    for name in ("pickle", "numpy", "runpy"):
        (here / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()")
    program = "import sys; sys.path.remove(''); from fsabs.cli import main; sys.path.append(''); main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "prepare", *(str(folder / name) for name in ("model.py", "raw", "out"))]
    done = subprocess.run([*command, "local"], cwd=here, stdin=subprocess.DEVNULL, timeout=120, check=False)
    assert done.returncode == 0
    assert not (folder / "imported").exists()


class Failing(Memory):
    """A store that fails where its files are looked at, or read."""

    scheme = "failing"
    looking: ClassVar[OSError | None] = None
    reading: ClassVar[OSError | None] = None

    def _stat(self, key: str, *how: Any) -> FileStat:
        if self.looking is not None:
            raise self.looking
        return super()._stat(key, *how)

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return Body(self, key, 7)


class Body(Blob):
    """A file of the store that fails."""

    def _pread(self, size: int, offset: int) -> bytes:
        if Failing.reading is not None:
            raise Failing.reading
        return b"content"[offset : offset + size]


def test_a_failure_of_the_store_is_not_that_of_a_file(folder: Path) -> None:
    """Where credentials end, no file is left out. One that may not be read, though the store shows it, is."""
    fsabs.register_backend("failing", Failing)
    for name in ("parts", "done"):
        (folder / "work" / name).mkdir(parents=True)
    with fsabs.from_url("failing://raw/", create=True) as store:
        write_tree(store, {"0/a": b"content"})
        manifest.create(store, folder / "raw.jsonl", versions=False)

    def run(
        reading: OSError, looking: OSError | None = None, size: int = 7, text: str = MODEL, pinned: str | None = None
    ) -> UnitResult:
        Failing.looking = Failing.reading = None
        form, root = OutputFormat("data", 8, "none", 1 << 20), InputRoot("failing://raw/", pinned)
        job = PrepareJob(ModelSource(text, "model.py"), (root,), str(folder), "work", form, skip_errors=True)
        with closing(work.UnitWorker(job)) as worker:
            worker.run(Unit(0, [InputFile(0, "0/a", 7)]))  # all is well
            Failing.looking, Failing.reading = looking, reading
            return worker.run(Unit(1, [InputFile(0, "0/a", size)]))

    refusal, silence = PermissionError(errno.EACCES, "it has expired"), TimeoutError(errno.ETIMEDOUT, "no answer")
    (failure,) = run(refusal).failures
    assert failure.file.endswith("//raw/0/a")
    assert "expired" in failure.reason
    for pinned in (None, str(folder / "raw.jsonl")):
        with pytest.raises(PermissionError, match="expired"):
            run(refusal, refusal, pinned=pinned)
    with pytest.raises(TimeoutError, match="no answer"):  # of a large file, which the function itself reads
        run(silence, size=work.LARGE)
    no_image = MODEL.replace("    return", "    raise OSError('no image')\n    return")
    (failure,) = run(silence, size=work.LARGE, text=no_image).failures
    assert "raised OSError: no image" in failure.reason


@pytest.mark.parametrize("pattern", ["raw/**", "raw/*"])
def test_what_lies_in_a_directory_that_matches_is_taken_once(folder: Path, pattern: str) -> None:
    report = prepare.run(folder / "model.py", f"{folder}/{pattern}", folder / "out", num_workers=1)
    assert report.files == 60
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))  # in their order, too


def test_a_shard_that_is_found_damaged_is_made_again(folder: Path) -> None:
    def damage(state: PrepareProgress) -> None:
        if state.files == 60:  # as after a loss of power
            path = min(folder.glob("out/.fsabs-prepare/job-*/parts/*"))
            path.write_bytes(path.read_bytes()[:-9])

    arguments: dict[str, Any] = {"num_workers": 1, "records_per_file": 20, "compressor": "none", "validate": True}
    with pytest.raises(OSError, match="00000"):
        prepare.run(folder / "model.py", folder / "raw", folder / "out", progress=damage, **arguments)
    report = prepare.run(folder / "model.py", folder / "raw", folder / "out", **arguments)
    assert digest(records_below(folder / "out")) == digest(plain_loop(FILES))
    assert 0 < report.resumed_files < 60


def test_an_object_of_a_directory_s_name_hides_nothing_from_a_pattern(
    moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto.create_bucket("twofold")
    for name, value in (
        ("S3_ENDPOINT", moto.endpoint),
        ("AWS_ACCESS_KEY_ID", moto.access_key),
        ("AWS_SECRET_ACCESS_KEY", moto.secret_key),
    ):
        monkeypatch.setenv(name, value)
    with fsabs.from_url("s3://twofold") as fs:
        for key in ("raw/a", "raw/a/x", "raw/a/y", "raw/z"):
            fs.write_bytes(key, key.encode())
    listing = list_files("s3://twofold/raw/**")
    urls = [listing.roots[file.root].url + "/" + file.path for file in listing.files]
    assert sorted(file.size for file in listing.files) == [5, 5, 7, 7], urls


def test_a_program_that_every_process_would_run_again_is_told(folder: Path) -> None:
    names = [str(folder / name) for name in ("model.py", "raw", "out")]
    (folder / "program.py").write_text(f"from fsabs import prepare\n\nprepare.run(*{names!r}, num_workers=1)\n")
    command = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert b"you have forgotten to use the proper idiom" in done.stderr
    assert b"ChildProcessError: a worker process ended 3 times at files" in done.stderr
    assert not list(folder.glob("out/.fsabs-prepare/job-*/done/*"))
