"""The errors of hdfs-native and of the NameNode, as Python's own: one line, and whether asking again may help."""

from __future__ import annotations

import enum
import errno
import os
import re
import socket
from types import TracebackType


class Verdict(enum.Enum):
    """The meaning of an error for the request that it ended."""

    FINAL = "final"
    """The NameNode has refused it: asking again gives the same."""
    NOT_EXECUTED = "not executed"
    """No NameNode has taken it: a standby, safe mode, no connection."""
    UNKNOWN = "unknown"
    """The connection broke, or no response came: it may have been executed."""


_BY_MESSAGE: list[tuple[str, int]] = [
    (r"StandbyException|ObserverRetryOnActive", errno.EHOSTDOWN),
    (r"SafeModeException|in safe mode", errno.EROFS),
    (r"RetriableException|RpcServerException: .*too busy|server too busy", errno.EBUSY),
    (r"Path is not a file", errno.EISDIR),
    (r"LeaseExpired|No lease on", errno.EBUSY),
    (r"File does not exist", errno.ENOENT),
    (r"already exists as a directory", errno.EISDIR),
    (r"AccessControlException|Permission denied|AuthorizationException", errno.EACCES),
    (r"^Kerberos: |SASLError|SaslException|GSSException|NoSASLMechanism|InvalidToken", errno.EACCES),
    (r"PathIsNotEmptyDirectory|directory is not empty", errno.ENOTEMPTY),
    (r"ParentNotDirectory|is not a directory|must both be directories", errno.ENOTDIR),
    (r"TooLong", errno.ENAMETOOLONG),
    (r"InvalidPath|IllegalArgument|InvalidArgument|UrlParse|cannot be the root|under source", errno.EINVAL),
    (r"across different name services", errno.EXDEV),
    (r"QuotaExceeded", errno.EDQUOT),
    (r"encryption zone|UnknownCryptoProtocolVersion|UnsupportedFeature", errno.EOPNOTSUPP),
    (r"Connection refused", errno.ECONNREFUSED),
    (r"lookup address|No route to host|Network is unreachable", errno.EHOSTUNREACH),
    (r"RPC listener disconnected|Connection reset|Broken pipe|early eof|unexpected end of file", errno.ECONNRESET),
    (r"No data received|[Tt]imed out|deadline", errno.ETIMEDOUT),
    (r"lease|AlreadyBeingCreated|RecoveryInProgress", errno.EBUSY),
]
_NOT_EXECUTED = {errno.EHOSTDOWN, errno.EROFS, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}
_RETRIABLE = re.compile(r"RetriableException|too busy|no connection to")
_UNKNOWN = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT}
_STACK = re.compile(r"(?:\\+n|\n)\s*(?:\\+t|\t|\s)*at [\w.$]+\(|\\+n\\+tat |\n\tat ")
_JAVA = re.compile(r'(?:Fatal)?RPCError\("[\w.]*\.([\w$]+)", "(.*)', re.DOTALL)
_GSSAPI = re.compile(r'GSSAPIError\(.*?, \d+, "(.*)', re.DOTALL)
_NODE = re.compile(r'ip_addr: \\*"([^"\\]*).*?xfer_port: (\d+)', re.DOTALL)
_VARIANT = re.compile(r'(?:OperationFailed|InvalidArgument|InvalidPath|UnsupportedFeature)\("(.*)"\)', re.DOTALL)
_QUOTED = re.compile(r'\\+(["\'\\])')


_NO_CONNECTION = "no connection to"


def not_connected(node: str, seconds: float) -> TimeoutError:
    """Return the error of a host that does not answer: the request was not sent."""
    return TimeoutError(errno.ETIMEDOUT, f"{_NO_CONNECTION} {node} within {seconds:g} s")


def verdict(exc: OSError) -> Verdict:
    """Return what `exc`, raised by `translated`, says of its request."""
    text = str(exc)
    if exc.errno in _NOT_EXECUTED or _RETRIABLE.search(text):
        return Verdict.NOT_EXECUTED
    return Verdict.UNKNOWN if exc.errno in _UNKNOWN else Verdict.FINAL


class Translated:
    """A context that turns what hdfs-native raises into Python's own errors; one serves any number of calls."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: TracebackType | None) -> None:
        if exc is None or (isinstance(exc, OSError) and exc.errno is not None and not isinstance(exc, socket.gaierror)):
            return
        if isinstance(exc, socket.gaierror):
            raise OSError(errno.EHOSTUNREACH, f"the host's name can't be resolved: {exc.strerror}") from exc
        if isinstance(exc, OSError | RuntimeError | UnicodeError | OverflowError | NotImplementedError):
            raise _error(exc) from exc
        name = type(exc).__name__
        if name == "TrashNotEnabledError":
            raise OSError(errno.EOPNOTSUPP, "the NameNode keeps no trash (fs.trash.interval is 0)") from exc
        if name == "PanicException":  # Rust's panics are no Exception, and must not pass
            raise OSError(errno.EIO, one_line(f"hdfs-native failed: {exc}")) from exc


translated = Translated()


def one_line(text: str) -> str:
    """Return a message of hdfs-native without Java's stack, dumps of structures and escapes."""
    text = _STACK.split(text, maxsplit=1)[0].strip()
    if variant := _VARIANT.fullmatch(text):
        text = variant[1]
    elif java := _JAVA.match(text):
        text = f"{java[1]}: {java[2]}"
    elif gssapi := _GSSAPI.match(text):
        text = f"Kerberos: {gssapi[1]}"
    if "All DataNodes failed" in text:
        nodes = ", ".join(f"{host}:{port}" for host, port in _NODE.findall(text))
        text = f"no DataNode could serve the block (tried: {nodes or 'none, it has no location'})"
    text = re.sub(r"(?:\\+[nrt]|\s)+", " ", text)
    return _QUOTED.sub(r"\1", text).strip().removesuffix('")').strip()


def _error(exc: BaseException) -> OSError:
    text = one_line(str(exc))
    if isinstance(exc, NotImplementedError):
        return OSError(errno.EOPNOTSUPP, text)
    for pattern, code in _BY_MESSAGE:
        if re.search(pattern, text):
            if code == errno.ECONNRESET and (user := os.environ.get("HADOOP_PROXY_USER")):
                text += f"; a NameNode that doesn't let this principal act for {user!r} ends the connection so"
            return OSError(code, text)
    for kind, code in ((FileNotFoundError, errno.ENOENT), (FileExistsError, errno.EEXIST)):
        if isinstance(exc, kind):
            return OSError(code, os.strerror(code))
    if isinstance(exc, UnicodeError | OverflowError):
        return OSError(errno.EINVAL, text)
    return OSError(errno.EIO, text)
