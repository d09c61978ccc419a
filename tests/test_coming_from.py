"""The scripts of examples/coming_from: before and after a move, with the library itself, they give the same samples in
each epoch.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fsabs
from tests import preloaded
from tests.servers import moto, peers
from tests.servers.azurite import AzuriteServer
from tests.servers.fixtures import require
from tests.servers.gcs_emulator import GcsEmulator

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "examples/coming_from"
LIBRARIES = {
    "webdataset": "webdataset",
    "streaming": "streaming",
    "litdata": "litdata",
    "s3fs": "s3fs",
    "gcsfs": "gcsfs",
    "adlfs": "adlfs",
    "smart_open": "smart_open",
    "msc": "multi-storage-client",
}
SAMPLES = {number: (bytes((number * 7 + i) % 256 for i in range(64)), number % 4) for number in range(48)}
MDS = """
from streaming import MDSWriter
with MDSWriter(out="mds", columns={"img": "bytes", "cls": "int"}, size_limit=2000) as writer:
    for img, cls in samples.values():
        writer.write({"img": img, "cls": cls})
"""
CHUNKS = """
import litdata
def sample(number):
    return {"img": samples[number][0], "cls": samples[number][1]}
if __name__ == "__main__":
    litdata.optimize(sample, inputs=list(samples), output_dir="lit", num_workers=1, chunk_bytes=2000)
"""
IN_MEMORY = f"samples = {SAMPLES!r}\n"


def script(name: str, which: str) -> str:
    """Return one of the scripts."""
    return (SCRIPTS / f"{name}_{which}.py").read_text()


class Place:
    """A folder with the data of all scripts, and an environment with the stores."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env

    def run(self, code: str, library: str | None = None) -> str:
        """Run a script, where `library` is installed; return what it prints."""
        path = self.folder / f"script-of-{library or 'fsabs'}.py"
        path.write_text(code)
        environment = {**os.environ, **self.env, "PYTHONPATH": str(peers.folder(library)) if library else ""}
        libraries = preloaded.TORCH if re.search("torch|webdataset|streaming|litdata", code) else ()
        done = preloaded.run(libraries, ["-W", "ignore", path], cwd=self.folder, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def prepared(self, name: str) -> None:
        """Make the data of a script, as its library writes it."""
        if name == "webdataset":
            (self.folder / "web").mkdir()
            for shard in range(4):
                with tarfile.open(self.folder / f"web/train-{shard:03}.tar", "w") as tar:
                    for number in range(12 * shard, 12 * shard + 12):
                        img, cls = SAMPLES[number]
                        for suffix, content in (("img", img), ("cls", b"%d" % cls)):
                            info = tarfile.TarInfo(f"{number:04}.{suffix}")
                            info.size = len(content)
                            tar.addfile(info, io.BytesIO(content))
        elif name == "streaming":
            self.run(IN_MEMORY + MDS, "streaming")
        elif name == "litdata":
            self.run(IN_MEMORY + CHUNKS, "litdata")
            self.run(script("litdata", "convert"), "litdata")
        elif name == "msc":
            indent = " " * 8
            where = f"{indent}endpoint_url: {self.env['AWS_ENDPOINT_URL_S3']}\n{indent}region_name: eu-1\n"
            (self.folder / "msc.yaml").write_text((SCRIPTS / "msc.yaml").read_text() + where)
            (self.folder / "pfio.ini").write_text((SCRIPTS / "msc.ini").read_text())


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    require(peers.missing)
    name = request.node.callspec.params["name"]
    env = {
        "FSABS_CACHE_DIR": "",
        "PFIO_CONFIG_PATH": str(tmp_path / "pfio.ini"),
        "MSC_CONFIG": str(tmp_path / "msc.yaml"),
    }
    url = None
    if name == "gcsfs":
        gcs: GcsEmulator = request.getfixturevalue("gcs")
        gcs.create_bucket("bucket")
        env["STORAGE_EMULATOR_HOST"], url = gcs.endpoint, "gs://bucket/pictures"
    elif name == "adlfs":
        azure: AzuriteServer = request.getfixturevalue("azurite")
        azure.create_container("container")
        account = f"AccountName={azure.account};AccountKey={azure.key};BlobEndpoint={azure.endpoint}"
        env["AZURE_STORAGE_CONNECTION_STRING"] = f"DefaultEndpointsProtocol=http;{account}"
        url = "az://container/pictures"
    elif name in ("s3fs", "smart_open", "msc"):
        require(moto.missing)
        server: moto.MotoServer = request.getfixturevalue("moto")
        server.create_bucket("bucket")
        env |= {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ENDPOINT_URL_S3": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_DEFAULT_REGION": server.region,
        }
        url = "s3://bucket/pictures"
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    if url is not None:
        with fsabs.from_url(url) as fs:
            fs.write_many((f"{cls}/{number:03}.bin", img) for number, (img, cls) in SAMPLES.items())
    return Place(tmp_path, env)


@pytest.mark.parametrize("name", LIBRARIES)
def test_both_scripts_give_the_same_samples(name: str, place: Place) -> None:
    place.prepared(name)
    wanted = sorted(f"{epoch} {cls} {sum(img)}" for epoch in range(2) for img, cls in SAMPLES.values())
    with ThreadPoolExecutor(2) as threads:  # at the same time, since most of it is importing
        before = threads.submit(place.run, script(name, "before"), LIBRARIES[name])
        after = threads.submit(place.run, script(name, "after"))
        assert sorted(before.result().splitlines()) == wanted
        assert sorted(after.result().splitlines()) == wanted
