"""The kit's subjects for stores that need a server, each with a side channel that is not fsabs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any

import fsabs
from fsabs import FS, manifest
from fsabs.backends.fsspec import Fsspec
from fsabs.core import keys
from fsabs.core.writing import PARTIAL_SUFFIX
from fsabs.manifest import ManifestFS
from fsabs.testing import LocalSubject
from fsabs.testing.subjects import Files, Subject
from tests.servers import azure_store
from tests.servers.azure_store import AzureStore
from tests.servers.azurite import AzuriteServer
from tests.servers.dav import DavServer
from tests.servers.gcs_emulator import GcsEmulator
from tests.servers.gcs_store import GcsStore
from tests.servers.hdfs import HdfsCluster
from tests.servers.hub import TOKEN, HubServer
from tests.servers.s3_server import S3Server
from tests.servers.shared import unique

BUCKET = "conformance"
MANY = 100
"""More files than so many are put by fsabs itself, many at once."""
_numbers = itertools.count(1)


class HubSubject(Subject):
    """Repositories of a hub of the tests, which is written to behind the back of the FS."""

    refused_characters = "\\"

    def __init__(self, hub: HubServer) -> None:
        self._hub = hub

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Makes a repository; git has no empty directories."""
        name = f"kit/{unique('kit')}"
        self._hub.make(name, files)
        return self.place(fsabs.from_url(f"hf://datasets/{name}", token=TOKEN), name)

    def stored(self, location: str) -> dict[str, bytes]:
        """Looks at the last commit."""
        commit = self._hub.repositories["datasets", location].at("main")
        assert commit is not None
        return {path: file.content for path, file in commit.files.items()}

    def reopen(self, url: str) -> FS | None:
        """With the token."""
        fs: FS = fsabs.from_url(url, token=TOKEN)
        return fs


class WebSubject(Subject):
    """Folders of an nginx, listed by manifests; the side channel is the disk."""

    refused_characters = "#%?"
    """What isn't a part of a name in a URL."""

    def __init__(self, server: DavServer) -> None:
        self._server = server
        self._base = str(server.files)
        self._folder = tempfile.mkdtemp(prefix="fsabs-manifests-")
        self._local = LocalSubject(self._base)
        self._manifests: dict[str, str] = {}

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Makes files, and the manifest of them."""
        with self._local.make(files, directories) as local:
            location = self._local.location(local)
            path = f"{self._folder}/{next(_numbers)}.jsonl"
            manifest.create(local, path, versions=False)
        url = f"{self._server.origin}/{os.path.relpath(location, self._base)}"
        _add_etags(path, url)
        self._manifests[url] = path
        return self.place(fsabs.from_url(url, manifest=path), location)

    def stored(self, location: str) -> dict[str, bytes]:
        """Looks at the folder."""
        return self._local.stored(location)

    def reopen(self, url: str) -> FS | None:
        """With the manifest of the tree, whose directory it may be."""
        root = next(root for root in self._manifests if f"{url}/".startswith(f"{root}/"))
        url = urllib.parse.unquote(url)  # names in manifests are not quoted
        return ManifestFS(fsabs.from_url(url), self._manifests[root], below=url[len(root) + 1 :])

    def close(self) -> None:
        """Removes the folders."""
        self._local.close()
        shutil.rmtree(self._folder)


def _add_etags(path: str, url: str) -> None:
    """Have a manifest tell the versions that its files have on a web server."""
    with open(path, encoding="utf-8") as file:
        head, *entries, end = map(json.loads, file)
    for entry in entries:
        if not entry["name"].endswith("/"):
            asked = urllib.request.Request(f"{url}/{urllib.parse.quote(entry['name'])}", method="HEAD")
            with urllib.request.urlopen(asked) as response:
                entry["version"] = response.headers["ETag"].strip('"')
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line, separators=(',', ':'))}\n" for line in (head, *entries, end))


class CloudSubject(Subject):
    """Prefixes of one bucket or container of a cloud; the side channel is the server's own."""

    def __init__(self, scheme: str, bucket: str, server: Any, refused_characters: str = "", **options: Any) -> None:
        self._url = f"{scheme}://{bucket}"
        self._bucket = bucket
        self._server = server
        self._options = {"endpoint": server.endpoint, **options}
        self.refused_characters = refused_characters

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Puts the objects, and an empty object for each directory; the root is one, too."""
        prefix = unique("kit")
        fs: FS = fsabs.from_url(f"{self._url}/{prefix}", **self._options)
        for key in ("", *(f"{key}/" for key in directories)):
            self._server.put(self._bucket, f"{prefix}/{key}", b"")
        if len(files) > MANY:
            fs.write_many(files)
        else:
            for key, data in files.items():
                self._server.put(self._bucket, f"{prefix}/{key}", data)
        return self.place(fs, prefix)

    def stored(self, location: str) -> dict[str, bytes]:
        """Lists the prefix, and gets each object."""
        names = self._server.list(self._bucket, f"{location}/")
        return {
            name[len(location) + 1 :]: self._server.get(self._bucket, name) for name in names if name != f"{location}/"
        }

    def reopen(self, url: str) -> FS | None:
        """With the store's options."""
        fs: FS = fsabs.from_url(url, **self._options)
        return fs


class CrowdedCloudSubject(CloudSubject):
    """The same on a server that looks at all of its objects for each listing: they go with the subject."""

    def close(self) -> None:
        """Removes the objects."""
        self._server.discard(self._bucket)


class StoreInMemory:
    """The side channel of a store in memory."""

    def __init__(self, store: GcsStore | AzureStore) -> None:
        self._store = store
        self.endpoint = store.endpoint

    def put(self, _: str, key: str, data: bytes) -> None:
        """Make an object."""
        with self._store.answering:
            self._store.put(key, data)

    def get(self, _: str, key: str) -> bytes:
        """Return the content of an object."""
        return self._store.content(key)

    def list(self, _: str, prefix: str) -> list[str]:
        """Return the names of all objects that begin with `prefix`."""
        with self._store.answering:
            return sorted(name for name in self._store.names() if name.startswith(prefix))

    def discard(self, _: str) -> None:
        """Remove all objects, and what the store remembers of its requests."""
        with self._store.answering:
            self._store.clear()


def s3_subject(server: S3Server) -> CloudSubject:
    """Prefixes of one bucket of a gateway."""
    server.create_bucket(BUCKET)
    return CloudSubject("s3", BUCKET, server, **server.options)


def moto_subject(server: S3Server) -> CloudSubject:
    """A bucket of its own of moto, whose listings take as long as there are objects in the bucket."""
    bucket = unique("kit")
    server.create_bucket(bucket)
    return CloudSubject("s3", bucket, server, "\n", **server.options)


def gcs_subject(store: GcsStore) -> CloudSubject:
    """The bucket of a Google Cloud Storage in memory."""
    return CrowdedCloudSubject("gs", BUCKET, StoreInMemory(store), anonymous=True)


def gcs_emulator_subject(server: GcsEmulator) -> CloudSubject:
    """A bucket of its own of an emulator of Google Cloud Storage, which has no uploads of parts."""
    bucket = unique("kit")
    server.create_bucket(bucket)
    return CloudSubject("gs", bucket, server, anonymous=True, mpu_chunksize=64 << 20)


def azure_subject(store: AzureStore) -> CloudSubject:
    """The container of an Azure Blob Storage in memory."""
    options = {"account_name": azure_store.ACCOUNT, "account_key": azure_store.KEY}
    return CrowdedCloudSubject("az", BUCKET, StoreInMemory(store), "\\", **options)


def azurite_subject(server: AzuriteServer) -> CloudSubject:
    """A container of its own of Azurite."""
    container = unique("kit")
    server.create_container(container)
    return CrowdedCloudSubject("az", container, server, "\\", account_key=server.key)


class HdfsSubject(Subject):
    """Directories of a cluster; the side channel is Hadoop's own client, in the cluster's JVM."""

    refused_characters = ":"

    def __init__(self, cluster: HdfsCluster) -> None:
        self._cluster = cluster

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Makes the directories and puts the files."""
        root = f"/{unique('kit')}"
        made = {root}
        for path in [root, *(f"{root}/{key}" for key in directories)]:
            self._cluster.mkdir(path)
        for key, data in files.items():
            if (folder := f"{root}/{keys.parent(key)}") not in made:
                self._cluster.mkdir(folder)
                made.add(folder)
            self._cluster.put(f"{root}/{key}", data)
        return self.place(fsabs.from_url(self._cluster.url + root), root)

    def stored(self, location: str) -> dict[str, bytes]:
        """Lists the tree, and gets each file."""
        found: dict[str, bytes] = {}
        for path, directory, _ in self._cluster.ls(location, recursive=True):
            key = path[len(location) + 1 :]
            found[key + "/" if directory else key] = b"" if directory else self._cluster.get(path)
        return found

    def hidden(self, name: str) -> bool:
        """Whether it is a half-written file of `Hdfs`."""
        return name.startswith(".") and name.endswith(PARTIAL_SUFFIX)


class FsspecSubject(Subject):
    """Directories of fsspec's memory filesystem; the side channel is the dictionary behind it."""

    shared = False

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Fills fsspec's filesystem by its own means."""
        root = f"/{unique('kit')}"
        memory = self._memory()
        for key in ("", *directories, *map(keys.parent, files)):
            memory.makedirs(f"{root}/{key}".rstrip("/"), exist_ok=True)
        for key, data in files.items():
            memory.pipe_file(f"{root}/{key}", data)
        return self.place(Fsspec("memory", "", root), root)

    def stored(self, location: str) -> dict[str, bytes]:
        """Reads the dictionary of files and the list of directories."""
        memory = self._memory()
        prefix = location + "/"
        found = {path[len(prefix) :]: file.getvalue() for path, file in memory.store.items() if path.startswith(prefix)}
        directories = (path[len(prefix) :] for path in memory.pseudo_dirs if path.startswith(prefix))
        return {**found, **{f"{path}/": b"" for path in directories}}

    def reopen(self, url: str) -> FS | None:
        """Nothing: `memory://` URLs are those of our own backend."""
        return None

    def close(self) -> None:
        """Empties it: whatever is asked of it, it looks at every file that there is."""
        memory = self._memory()
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]

    @staticmethod
    def _memory() -> Any:
        from fsspec.implementations.memory import MemoryFileSystem

        return MemoryFileSystem()
