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


RECOVER_LEASE = "recover_lease(path) takes the file from a writer that is gone"
"""What helps against a file that another client writes."""

# What an error says, and its errno. The library's own types come first: they may be a path alone.
_ERRNO = [
    (r"^FileNotFoundError: Path is not a file|^IsADirectoryError: ", errno.EISDIR),
    (r"^FileNotFoundError: ", errno.ENOENT),
    (r"^FileExistsError: .*already exists as a directory\.?$", errno.EISDIR),
    (r"^FileExistsError: Path is not a directory", errno.ENOTDIR),
    (r"^FileExistsError: [Ff]ailed to ", errno.EBUSY),
    (r"^FileExistsError: ", errno.EEXIST),
    (r"StandbyException|ObserverRetryOnActive", errno.EHOSTDOWN),
    (r"SafeModeException|in safe mode", errno.EROFS),
    (r"RetriableException|RpcServerException: .*too busy|server too busy", errno.EBUSY),
    (r"LeaseExpired|No lease on", errno.EBUSY),
    (r"File does not exist", errno.ENOENT),
    (r"AccessControlException|Permission denied|AuthorizationException", errno.EACCES),
    (r"Kerberos: |SASLError|SaslException|GSSException|NoSASLMechanism|InvalidToken", errno.EACCES),
    (r"PathIsNotEmptyDirectory|directory is not empty", errno.ENOTEMPTY),
    (r"ParentNotDirectory|is not a directory|must both be directories", errno.ENOTDIR),
    (r"TooLong", errno.ENAMETOOLONG),
    (r"InvalidPath|IllegalArgument|InvalidArgument|UrlParse|cannot be the root|under source", errno.EINVAL),
    (r"^Unicode\w+: |^OverflowError: ", errno.EINVAL),
    (r"across different name services", errno.EXDEV),
    (r"QuotaExceeded", errno.EDQUOT),
    (r"^NotImplementedError: |encryption zone|UnknownCryptoProtocolVersion|UnsupportedFeature", errno.EOPNOTSUPP),
    (r"Connection refused", errno.ECONNREFUSED),
    (r"lookup address|No route to host|Network is unreachable", errno.EHOSTUNREACH),
    (r"RPC listener disconnected|Connection reset|Broken pipe|early eof|unexpected end of file", errno.ECONNRESET),
    (r"No data received|[Tt]imed out|deadline", errno.ETIMEDOUT),
    (r"lease|AlreadyBeingCreated|RecoveryInProgress", errno.EBUSY),
]
# What is added to a message that begins so.
_ADVICE = [
    (r"Failed to |failed to create|\w+: [Ff]ailed to |RecoveryInProgress", f"; {RECOVER_LEASE}"),
    (r"no DataNode could serve", ": it is silent or off, has lost it, or its bytes don't match their checksums"),
    (r"All nodes failed for write", "; what is without checksums (dfs.checksum.type NULL) can't be appended to"),
]
_NOT_EXECUTED = {errno.EHOSTDOWN, errno.EROFS, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}
_NO_CONNECTION = "no connection to"
_RETRIABLE = re.compile(rf"RetriableException|RpcServerException: .*too busy|server too busy|{_NO_CONNECTION}")
_UNKNOWN = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT}
_STACK = re.compile(r"(?:\\+n|\n)\s*(?:\\+t|\t|\s)*at [\w.$]+\(|\\+n\\+tat |\n\tat ")
_JAVA = re.compile(r'(?:Fatal)?RPCError\("[\w.]*\.([\w$]+)", "(.*)', re.DOTALL)
_GSSAPI = re.compile(r'GSSAPIError\(.*?, \d+, "(.*)', re.DOTALL)
_NODE = re.compile(r'ip_addr: \\*"([^"\\]*).*?xfer_port: (\d+)', re.DOTALL)
_VARIANT = re.compile(
    r'(?:OperationFailed|InvalidArgument|InvalidPath|UnsupportedFeature|DataTransferError)\("(.*)"\)', re.DOTALL
)
_QUOTED = re.compile(r'\\+(["\'\\])')
_PATH = re.compile(r"/[^\s:,;]*")


def not_connected(node: str, seconds: float) -> TimeoutError:
    """Return the error of a host that does not answer: the request was not sent."""
    return TimeoutError(errno.ETIMEDOUT, f"{_NO_CONNECTION} {node} within {seconds:g} s")


def verdict(exc: OSError) -> Verdict:
    """Return what `exc`, raised by `translated`, says of its request."""
    if exc.errno in _NOT_EXECUTED or _RETRIABLE.match(exc.strerror or ""):
        return Verdict.NOT_EXECUTED
    return Verdict.UNKNOWN if exc.errno in _UNKNOWN else Verdict.FINAL


class Translated:
    """A context that turns what hdfs-native raises into Python's own errors; one serves any number of calls."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: TracebackType | None) -> None:
        if exc is not None and (found := _translation(exc)) is not None:
            raise found from exc


translated = Translated()


def _translation(exc: BaseException) -> OSError | None:
    """Return what to raise in place of `exc`, None to let it pass."""
    name = type(exc).__name__  # Rust's panics are no Exception, and must not pass
    if isinstance(exc, socket.gaierror):
        return OSError(errno.EHOSTUNREACH, f"the host's name can't be resolved: {exc.strerror}")
    if name == "TrashNotEnabledError":
        return OSError(errno.EOPNOTSUPP, "the NameNode keeps no trash (fs.trash.interval is 0)")
    if name == "PanicException":
        return OSError(errno.EIO, one_line(f"hdfs-native failed: {exc}"))
    if isinstance(exc, OSError) and exc.errno is not None:
        return None
    found = isinstance(exc, OSError | RuntimeError | UnicodeError | OverflowError | NotImplementedError)
    return _error(exc) if found else None


def one_line(text: str) -> str:
    """Return a message of hdfs-native without Java's stack, dumps of structures and escapes."""
    text = _STACK.split(text, maxsplit=1)[0].strip()
    if java := _JAVA.match(text):
        text = f"{java[1]}: {java[2]}"
    elif gssapi := _GSSAPI.match(text):
        text = f"Kerberos: {gssapi[1]}"
    elif variant := _VARIANT.fullmatch(text):
        text = variant[1]
    if "All DataNodes failed" in text:
        nodes = ", ".join(f"{host}:{port}" for host, port in _NODE.findall(text))
        text = f"no DataNode could serve the block (tried: {nodes or 'none, it has no location'})"
    text = re.sub(r"(?:\\+[nrt]|\s)+", " ", text)
    return _QUOTED.sub(r"\1", text).strip().removesuffix('")').strip()


def _error(exc: BaseException) -> OSError:
    text, kind = one_line(str(exc)), type(exc).__name__
    says = f"{kind}: {text}" if type(exc) not in (OSError, RuntimeError) else _PATH.sub("", text)
    code = next((code for pattern, code in _ERRNO if re.search(pattern, says)), errno.EIO)
    if code in (errno.ENOENT, errno.EEXIST):
        return OSError(code, os.strerror(code))
    if code == errno.ECONNRESET and (user := os.environ.get("HADOOP_PROXY_USER")):
        text += f"; a NameNode that doesn't let this principal act for {user!r} ends the connection so"
    return OSError(code, text + "".join(advice for pattern, advice in _ADVICE if re.match(pattern, text)))
