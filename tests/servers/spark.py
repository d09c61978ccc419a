"""A real Spark for tests: a standalone master and two workers on loopback, of pyspark 4 or 3.5.

pyspark 4 is a package of the extra `test`; `install()` puts 3.5 into a folder of the tests' cache, from which
`environment("3.5")` has it imported. Drivers are programs of their own, so that no test process holds a JVM. Nothing
here imports pytest.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.servers.hdfs_jvm import cache_dir
from tests.servers.process import Server, free_port, locked

VERSIONS = ("4", "3.5")
_OLD = ("pyspark==3.5.*", "py4j==0.10.9.7")
_NO_SETTINGS = cache_dir() / "spark-no-settings"
_MARK = "FSABS_TEST_SPARK"
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss1m")  # up soon, and small
_OPENS = [
    option
    for package in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")
    for option in ("--add-opens", f"java.base/java.{package}=ALL-UNNAMED")
]
_DEFAULTS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": " ".join(_JVM),
    "spark.executor.extraJavaOptions": " ".join(_JVM),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "60s",
    "spark.sql.shuffle.partitions": "2",
}

_LOG = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


def _old_folder() -> Path:
    return cache_dir() / f"pyspark-3.5-{sys.version_info[0]}.{sys.version_info[1]}"


def _archive(version: str) -> Path:
    """Return the file of the classes that JVMs of a version map, where each would load and verify thousands of them.

    It is of one Java, of one folder of jars and of one folder of settings on the class path, which has to be empty.
    """
    home = f"{shutil.which('java')} {_core(version)} {_NO_SETTINGS}"
    return cache_dir() / f"spark-{version}-{hashlib.sha256(home.encode()).hexdigest()[:12]}.jsa"


def missing() -> str | None:
    """Return None if Spark of both versions can run here, else a sentence that says what is missing."""
    if shutil.which("java") is None:
        return "Spark needs Java 17: run `apt-get install -y --no-install-recommends openjdk-17-jdk-headless` as root."
    if importlib.util.find_spec("pyspark") is None:
        return f"Spark needs pyspark: run `{sys.executable} -m pip install 'pyspark>=4'`."
    if not _old_folder().is_dir():
        return f"pyspark 3.5 is not in {cache_dir()}: run `python -m tests.servers install`."
    return None


def incomplete() -> str | None:
    """Return `missing()`, or what to do where Spark runs, and takes twice the time for it."""
    if (reason := missing()) is not None:
        return reason
    absent = [version for version in VERSIONS if not _archive(version).exists()]
    return f"The classes of pyspark {' and '.join(absent)} are in no archive yet." if absent else None


def install() -> None:
    """Install pyspark 3.5 into the cache, and the archives of classes, where they are not there; safe in several
    processes at once and to kill.
    """
    folder = _old_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        for killed in folder.parent.glob("pyspark-download-*"):
            shutil.rmtree(killed, ignore_errors=True)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="pyspark-download-") as tmp:
                fresh = Path(tmp, "fresh")
                command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                command += ["--no-cache-dir", "--no-compile", "--no-deps", "--target", str(fresh), *_OLD]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
                fresh.rename(folder)
        if missing() is None:
            for version in VERSIONS:
                _write_archive(version)


_SESSION = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").getOrCreate()
assert session.sparkContext.parallelize([1]).map(str).count() == session.range(9).selectExpr("sum(id)").count() == 1
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def _write_archive(version: str) -> None:
    """Run a session whose JVM writes the archive at its end."""
    archive = _archive(version)
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="pyspark-download-") as tmp:
        fresh, conf = Path(tmp, "fresh.jsa"), Path(tmp, "conf")
        write_defaults(conf, spark_driver_extraJavaOptions=" ".join((*_JVM, f"-XX:ArchiveClassesAtExit={fresh}")))
        env, command = environment(version, conf, ""), [sys.executable, "-c", _SESSION]
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode or not fresh.exists():
            raise RuntimeError(f"a session of Spark {version} wrote no {fresh}:\n{done.stdout[-2000:]}")
        fresh.rename(archive)


def _home(version: str) -> Path:
    """Return the folder of pyspark, which is Spark's home."""
    if version == "3.5":
        return _old_folder() / "pyspark"
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _core(version: str) -> Path:
    (core,) = (_home(version) / "jars").glob("spark-core_*.jar")
    return core


def environment(version: str, conf: Path, path: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a driver or a daemon; `path` is its PYTHONPATH beside pyspark's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    _NO_SETTINGS.mkdir(parents=True, exist_ok=True)
    options = [f"-Dlog4j2.configurationFile={conf}/log4j2.properties", "-Xlog:disable"]
    if (archive := _archive(version)).exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    parts = [str(_old_folder())] * (version == "3.5") + [path] * bool(path)
    return {
        **kept,
        "SPARK_HOME": str(_home(version)),
        "SPARK_SCALA_VERSION": _core(version).name.split("_")[1].split("-")[0],  # bin/spark-class would find it out
        "SPARK_CONF_DIR": str(_NO_SETTINGS),
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {conf}/spark-defaults.conf pyspark-shell",
        "JDK_JAVA_OPTIONS": " ".join(options),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(parts),
        "PYTHONWARNINGS": "ignore",
        **(extra or {}),
    }


def write_defaults(conf: Path, **settings: str) -> None:
    """Write a configuration folder for small JVMs on loopback; `settings` by their names with `_` for `.`."""
    conf.mkdir(parents=True, exist_ok=True)
    values = {**_DEFAULTS, **{name.replace("_", "."): value for name, value in settings.items()}}
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in values.items()))
    (conf / "log4j2.properties").write_text(_LOG)


class SparkCluster(Server):
    """A standalone master and `workers` workers of one core each, on 127.0.0.1, 127.0.0.2 and so on.

    Executors inherit `variables`, as they would have their credentials on a real cluster.
    """

    missing = staticmethod(missing)
    name = "spark"
    end_signal = signal.SIGKILL

    def __init__(self, version: str = "4", workers: int = 2, variables: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.version = version
        self._workers = workers
        self._variables = dict(variables or {})
        self._mark = uuid.uuid4().hex

    @property
    def master(self) -> str:
        """The URL of the master."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def conf(self) -> Path:
        """The folder of the configuration, for drivers."""
        return self.folder / "conf"

    def prepare(self) -> None:
        """Write the configuration."""
        super().prepare()
        write_defaults(self.conf)

    def launch(self) -> None:
        """Start the master, and the workers when it is there."""
        settings = ["--properties-file", str(self.conf / "spark-defaults.conf")]
        ports = ["--port", str(self._port), "--webui-port", str(free_port())]
        self._daemon("master", "Master", *settings, "--host", "127.0.0.1", *ports)
        self.wait_for(lambda: "started at" in self._log("master"), "Spark's master")
        for number in range(self._workers):
            name = f"worker{number}"
            host = f"127.0.0.{number + 1}"  # Spark repeats no task on the host that it is slow on
            options = ["--cores", "1", "--memory", "700m", "--host", host, "--webui-port", str(free_port())]
            arguments = [*settings, *options, "--work-dir", str(self.folder / name), self.master]
            self._daemon(name, "Worker", *arguments, host=host)

    def probe(self) -> bool:
        """Return True if the workers are registered."""
        return all("Successfully registered" in self._log(f"worker{number}") for number in range(self._workers))

    def end(self) -> None:
        """Kill the daemons, the executors and their Python processes."""
        super().end()
        self.kill_marked()

    def executors(self) -> list[int]:
        """Return the process ids of the JVMs that are executors."""
        return [pid for pid, command in self._marked() if "CoarseGrainedExecutorBackend" in command]

    def kill_executor(self) -> bool:
        """Kill one executor by SIGKILL; return False if there is none."""
        for pid in self.executors()[:1]:
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def kill_marked(self) -> None:
        """Kill all processes that the daemons started."""
        for _ in range(20):
            found = self._marked()
            if not found:
                return
            for pid, _ in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _marked(self) -> list[tuple[int, str]]:
        return list(marked(self._mark))

    def _daemon(self, name: str, kind: str, *arguments: str, host: str = "127.0.0.1") -> None:
        java = shutil.which("java")
        assert java is not None
        jars = _home(self.version) / "jars" / "*"
        package = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        command = [java, "-cp", f"{_NO_SETTINGS}/:{jars}", "-Xmx160m", *_JVM, *_OPENS, package, *arguments]
        variables = {**self._variables, _MARK: self._mark, "SPARK_LOCAL_IP": host}
        env = environment(self.version, self.conf, "", variables)
        self.spawn(name, command, env)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")


def marked(mark: str) -> Iterator[tuple[int, str]]:
    """Yield the process ids and command lines of the processes whose environment has a mark."""
    wanted = f"{_MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name):
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
