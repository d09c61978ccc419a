"""Where requests to a bucket go, how they are signed, and by which credentials: what boto3 resolves for a
`GetObject` of the bucket, after options, environment, profile and configuration file.

Most often that is plain: keys and an endpoint or a region are given, and nothing else is configured. Then it is known
here, without boto3, which takes ten times as long to import as a first read needs. In every other case the request is
prepared by boto3 and caught by an event handler before it is signed or sent (`boto.py`). Nothing here sends anything.
"""

from __future__ import annotations

import configparser
import errno
import hashlib
import hmac
import os
import re
import sys
import time
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import process, redaction
from ...core.errors import ConfigError
from ..objects.access import ANONYMOUS, Access, Endpoint, bundled, checked_url, described
from ..objects.messages import Body, has_breaks, header_lines, parts_of
from .options import CONNECT_TIMEOUT, READ_TIMEOUT, Options, core_session, environment

if TYPE_CHECKING:
    from _hashlib import HASH


SIGV4 = "s3v4"
EXPRESS = "v4-s3express"
DEFAULT_REGION = "us-east-1"
"""A store of one's own has no regions, but a signature needs the name of one."""
_VARIABLES = """
AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_DEFAULT_REGION AWS_REGION AWS_ENDPOINT_URL
AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE AWS_MAX_ATTEMPTS AWS_EC2_METADATA_DISABLED AWS_CONFIG_FILE AWS_PAGER
AWS_SHARED_CREDENTIALS_FILE AWS_REQUEST_CHECKSUM_CALCULATION AWS_RESPONSE_CHECKSUM_VALIDATION
"""
_UNDERSTOOD = frozenset(_VARIABLES.split())
"""Variables of the environment whose meaning for these requests is known here, if it is any."""
_KEYS = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
_PLAIN_SETTINGS = frozenset({"region", "output", "cli_pager", *_KEYS})
_PLAIN_REGION = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-[1-9]").fullmatch
_PLAIN_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]").fullmatch
_NAMED_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}").fullmatch
_SPECIAL_BUCKETS = ("--x-s3", "--ol-s3", "-s3alias", "--xa-s3", "--table-s3")


class Credentials(NamedTuple):
    """Credentials that are as they are; as those of botocore."""

    access_key: str
    secret_key: str
    token: str | None = None
    method: str = "explicit"

    def __repr__(self) -> str:
        return "Credentials(***)"

    def get_frozen_credentials(self) -> Credentials:
        """Return those of the moment."""
        return self


class Place(NamedTuple):
    """A bucket's address, and how requests to it are signed. Plain data: it belongs to no process."""

    endpoint: Endpoint
    store: str
    """The URL of the store, without the bucket."""
    region: str
    """The region of the credential scope."""
    signing_name: str = "s3"
    """The service of the credential scope: `s3`, `s3express`, `s3-outposts`, `s3-object-lambda`."""
    signature: str | None = SIGV4
    """`SIGV4`, `EXPRESS` (with the credentials of a session of S3 Express), or None for unsigned requests."""
    sign_payload: bool | None = None
    """Whether a body's hash is signed; None: where neither TLS nor a checksum protects it."""
    checksums: bool = True
    """Whether written bodies carry a checksum that the store verifies."""
    credentials: Any = None
    """Credentials of botocore, which refreshes them, or `Credentials`; None where there are none."""

    def __repr__(self) -> str:
        return redaction.representation("Place", self._asdict())


RENEWED_SECONDS = 0.5
"""Credentials that were read anew and had not changed are kept for so long: a refusal may have other reasons, and AWS
refuses a HEAD of what is not there, without one, where the user may not list."""
_MAX_REMEMBERED = 64
_remembered: dict[object, Place] = {}
"""The places that are known, without credentials that each process must refresh for itself. A forked child inherits
them: it needs no client of boto3, which takes 20 ms to make."""


def resolve(bucket: str, options: Options) -> Place:
    """Return where boto3 would send a `GetObject` of `bucket`, a name or the ARN of an access point.

    Raises `OSError`, and `ConfigError` for a configuration that leads nowhere.
    """
    name = (bucket, options, environment())
    found = _remembered.get(name)
    if found is None:
        found = plain(bucket, options)
        if found is None:
            from . import boto

            found = boto.resolve(bucket, options)
        if len(_remembered) >= _MAX_REMEMBERED:
            _remembered.clear()
        _remembered[name] = found
    if found.signature is None or found.credentials is not None:
        return found
    from . import boto

    return found._replace(credentials=boto.credentials(bucket, options, found))


def needs_no_boto3(bucket: str, options: Options) -> bool:
    """Return whether the place of a bucket is known, or can be without boto3."""
    return (bucket, options, environment()) in _remembered or plain(bucket, options) is not None


def is_aws(url: str) -> bool:
    """Return whether the URL of a store is one of AWS's."""
    host = urllib.parse.urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def forget(bucket: str, options: Options) -> None:
    """Have the next `resolve` look anew."""
    _remembered.pop((bucket, options, environment()), None)


# ---- without boto3


def plain(bucket: str, options: Options) -> Place | None:
    """Return the place that boto3 would resolve; None where only boto3 knows it."""
    settings = _settings() if options.session is None and options.profile is None else None
    if settings is None or _answered_by_a_mock() or options.proxies:
        return None
    credentials = _keys(options)
    if credentials is None and not options.anonymous:
        return None
    region = options.region or os.environ.get("AWS_DEFAULT_REGION") or settings.get("region", "")
    url = next(filter(None, (options.endpoint, *map(os.environ.get, ENDPOINT_VARIABLES))), None)
    if url is not None:
        region = region or DEFAULT_REGION
        address = _own_address(url, bucket) if options.path_style is not False else None
    else:
        address = _address_at_aws(bucket, region, options.path_style) if region else None
    attempts = options.max_attempts or os.environ.get("AWS_MAX_ATTEMPTS")
    if address is None or not re.fullmatch("[a-z0-9-]+", region) or not str(attempts or 1).isdigit():
        return None
    store, host_header, path_prefix = address
    endpoint = Endpoint.at(f"{store.partition(':')[0]}://{host_header}", path_prefix)
    verify = _certificates(options.verify) if endpoint.tls else False
    if verify is None:
        return None
    endpoint = endpoint._replace(
        connect_timeout=options.connect_timeout or CONNECT_TIMEOUT,
        read_timeout=options.read_timeout or READ_TIMEOUT,
        max_attempts=int(attempts) if attempts else None,
        verify=verify,
        client_certificate=options.client_certificate,
    )
    required = os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION", "").lower() == "when_required"
    signature = None if options.anonymous else SIGV4
    return Place(endpoint, store, region, "s3", signature, None, not required, credentials)


ENDPOINT_VARIABLES = ("S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def _settings() -> Mapping[str, str] | None:
    """Return what the configuration files say, if that and the environment are plain; else None."""
    for name, value in os.environ.items():
        if name.startswith(("AWS_", "BOTO")) and name not in _UNDERSTOOD:
            return None
        if name.lower().endswith("_proxy") and name.lower() != "no_proxy" and value:
            return None
    found: dict[str, str] = {}
    for variable, usual in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        path = os.path.expanduser(os.environ.get(variable) or f"~/.aws/{usual}")
        parser = configparser.RawConfigParser(default_section="")
        try:
            with open(path, encoding="utf-8") as file:
                parser.read_file(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, configparser.Error):
            return None
        here = dict(parser["default"]) if parser.has_section("default") else {}
        if parser.has_section("plugins") or not here.keys() <= _PLAIN_SETTINGS:
            return None
        found |= here
    return found


def _answered_by_a_mock() -> bool:
    """Return whether requests of boto3 may be answered in place of a store, as moto's mocks do."""
    handlers = getattr(sys.modules.get("botocore.handlers"), "BUILTIN_HANDLERS", ())
    return any(
        str(event).startswith("before-send") and getattr(handler, "enabled", True) for event, handler, *_ in handlers
    )


def _keys(options: Options) -> Credentials | None:
    if options.aws_access_key_id and options.aws_secret_access_key:
        return Credentials(options.aws_access_key_id, options.aws_secret_access_key, options.aws_session_token)
    if options.aws_access_key_id or options.aws_secret_access_key or options.aws_session_token:
        return None
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    token = os.environ.get("AWS_SESSION_TOKEN") or None
    return Credentials(key, secret, token, "env") if key and secret else None


def _own_address(url: str, bucket: str) -> tuple[str, str, str] | None:
    """Return store, host and path prefix of a bucket behind an endpoint of one's own, which boto3 has in the path."""
    try:
        parts = urllib.parse.urlsplit(checked_url(url))
    except ValueError:
        return None
    path, host = parts.path, parts.hostname or ""
    if "amazonaws" in host or not _NAMED_BUCKET(bucket) or bucket.endswith(_SPECIAL_BUCKETS):
        return None
    if not re.fullmatch("[A-Za-z0-9/._~-]*", path) or not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", parts.netloc):
        return None
    return f"{parts.scheme}://{parts.netloc.lower()}{path}", parts.netloc, f"{path}/{bucket}/"


def _address_at_aws(bucket: str, region: str, path_style: bool | None) -> tuple[str, str, str] | None:
    if not (_PLAIN_REGION(region) and _PLAIN_BUCKET(bucket)) or bucket.endswith(_SPECIAL_BUCKETS):
        return None
    host = "s3.amazonaws.com" if region == DEFAULT_REGION else f"s3.{region}.amazonaws.com"
    if path_style:
        return f"https://{host}", host, f"/{bucket}/"
    return f"https://{host}", f"{bucket}.{host}", "/"


def _certificates(verify: bool | str | None) -> bool | str | None:
    """Return the file of trusted certificates that botocore would load, False for none; None if it is not known."""
    if verify is False or isinstance(verify, str):
        return verify
    given = (os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")) if verify is None else None
    return given or bundled("certifi", "botocore")


# ---- access


class S3Access(Access):
    """The access to `bucket` with `options`."""

    def __init__(self, bucket: str, options: Options, place: Place) -> None:
        if place.signature is not None and place.credentials is None:
            forget(bucket, options)  # the next one looks for them again
            if options.session is None:
                _forget_client(options)
            raise PermissionError(
                errno.EACCES,
                f"no credentials in options, environment, ~/.aws or roles; for a public bucket: {ANONYMOUS}",
            )
        self._bucket = bucket
        self._options = options
        self._unchanged_since = float("-inf")
        self.place = place
        self.endpoint = place.endpoint
        self._signer = Signer(place) if place.signature is not None and place.endpoint.transport is None else None
        if self._signer is not None:
            self.authorise = self._signer.lines  # type: ignore[method-assign]  # a call less for each request

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines of a request that is not signed here."""
        return header_lines(headers)

    def presigned(self, method: str, path: str, query: str, seconds: int) -> str:
        """Return the query of a presigned request, also where boto3 sends the others."""
        if self.place.signature is None:
            return query
        if not self.place.signature:
            raise OSError(errno.EOPNOTSUPP, "a URL is signed by Signature Version 4, and this store has another one")
        return Signer(self.place).presigned(method, path, query, seconds)

    def renewed(self) -> Access | None:
        """Read the credentials anew: those of a file or of a role may be newer."""
        if self.place.signature is None or time.monotonic() - self._unchanged_since < RENEWED_SECONDS:
            return None
        forget(self._bucket, self._options)
        before = self.place.credentials.get_frozen_credentials()[:3]
        _forget_client(self._options)
        found = S3Access(self._bucket, self._options, resolve(self._bucket, self._options))
        if found.place.credentials.get_frozen_credentials()[:3] != before:
            return found
        self._unchanged_since = time.monotonic()
        return None

    def moved(self, place: str) -> Access | None:
        """Resolve the bucket's address in another region."""
        if place == self.place.region:
            return None
        elsewhere = self._options._replace(region=place)
        try:
            found = resolve(self._bucket, elsewhere)
        except ConfigError:  # what the store names is no region
            return None
        return S3Access(self._bucket, self._options, found)


def _forget_client(options: Options) -> None:
    """Have boto3, if it has been asked, look for credentials again."""
    if (boto := sys.modules.get("fsabs.backends.s3.boto")) is not None:
        boto.forget_credentials(options)


# ---- descriptions, for people

_SOURCES = {
    "explicit": "options",
    "env": "environment: $AWS_ACCESS_KEY_ID",
    "shared-credentials-file": "shared credentials file",
    "config-file": "AWS configuration file",
    "boto-config": "boto2 configuration file",
    "iam-role": "role of the EC2 instance",
    "container-role": "role of the container",
    "assume-role": "assumed role",
    "assume-role-with-web-identity": "web identity: $AWS_WEB_IDENTITY_TOKEN_FILE",
    "sso": "single sign-on",
    "login": "aws login",
    "custom-process": "credential process",
}
"""botocore's names of its providers of credentials."""


def describe(bucket: str, options: Options) -> dict[str, str]:
    """Return how a bucket is reached, with no secret in it; each value ends in its source, in parentheses."""
    place = resolve(bucket, options)
    found = {
        "bucket": bucket,
        **described(place.endpoint),
        "endpoint": f"{place.store} ({_source_of_endpoint(place, options)})",
        "region": f"{place.region} ({_source_of_region(place, options)})",
        "credentials": _source_of_credentials(place, options),
    }
    if place.endpoint.transport is not None:
        found["client"] = "boto3 carries all requests"
    return found


def principal(place: Place, options: Options) -> str:
    """Return whom requests are signed for: the key, or for keys that a provider renews the provider and its role."""
    found = place.credentials
    if found is None:
        return ""
    profile = options.profile if options.session is None else core_session(options.session).profile
    fixed = found.method in ("explicit", "env", "shared-credentials-file", "config-file", "boto-config")
    if fixed or (options.session is not None and not profile):
        return str(found.get_frozen_credentials().access_key)
    if options.session is None:
        profile = profile or os.environ.get("AWS_PROFILE", "")
    return f"{found.method} {profile or ''} {os.environ.get('AWS_ROLE_ARN', '')}"


def _source_of_credentials(place: Place, options: Options) -> str:
    if options.anonymous:
        return "none: anonymous=True"
    if (found := place.credentials) is None:
        advice = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return f"none found: {advice}; for a public bucket: {ANONYMOUS}"
    source = _SOURCES.get(found.method, str(found.method))
    if found.method == "explicit" and options.session is not None:
        source = "session"
    profile = options.profile or os.environ.get("AWS_PROFILE")
    return f"{source}, profile {profile}" if profile and found.method not in ("explicit", "env") else source


def _source_of_endpoint(place: Place, options: Options) -> str:
    if options.endpoint:
        return "option endpoint"
    for name in ENDPOINT_VARIABLES:
        if os.environ.get(name):
            return f"${name}"
    return "default" if is_aws(place.store) else "AWS configuration file"


def _source_of_region(place: Place, options: Options) -> str:
    if options.region:
        return "option region"
    if options.session is not None and core_session(options.session).get_config_variable("region"):
        return "session"
    if os.environ.get("AWS_DEFAULT_REGION"):
        return "$AWS_DEFAULT_REGION"
    return "default" if place.region == DEFAULT_REGION else "AWS configuration file"


# ---- Signature Version 4 (docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html) of requests to one endpoint

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_UNSIGNED = "UNSIGNED-PAYLOAD"
_BLOCK = hashlib.sha256().block_size
_MAX_FORMS = 64
"""Sets of headers that are kept for a second; those of a body's checksum are all different."""

Headers = tuple[str, ...]
"""`name:value` each, with names in lower case."""


class _SignedHeaders(NamedTuple):
    """The values that all requests of one second with the same headers and payload share."""

    canonical: str
    """The canonical request after the query."""
    lines: str
    """The header lines up to the signature."""


class _Second:
    """The values that all requests of one second share."""

    def __init__(self, number: int, stamp: str, key: bytes, scope: str, access_key: str, token: str | None) -> None:
        self.number = number
        self.stamp = stamp
        self.token = token
        self.credential = f"{access_key}/{scope}"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n"
        # The two hashes of an HMAC (RFC 2104) that have taken the key, and the string to sign before the digest: copies
        # of them go on in half the time of a new HMAC.
        key = key.ljust(_BLOCK, b"\0")
        self.inner: HASH = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + text.encode())
        self.outer: HASH = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))
        self.forms: dict[tuple[Headers, str], _SignedHeaders] = {}

    def signature(self, canonical: str) -> str:
        """Return the signature of a canonical request."""
        inner, outer = self.inner.copy(), self.outer.copy()
        inner.update(hashlib.sha256(canonical.encode()).hexdigest().encode())
        outer.update(inner.digest())
        return outer.hexdigest()


class Signer:
    """Signs requests to an endpoint with the credentials of the moment, which boto3 renews when it is time."""

    def __init__(self, place: Place) -> None:
        self._credentials = place.credentials
        self._region = place.region
        self._service = place.signing_name
        self._host = place.endpoint.host_header
        self._tls = place.endpoint.tls
        self._sign_payload = place.sign_payload
        express = place.signature == EXPRESS
        self._token_header = "x-amz-s3session-token" if express else "x-amz-security-token"
        self._token_name = "X-Amz-S3session-Token" if express else "X-Amz-Security-Token"
        self._second: _Second | None = None

    def lines(self, method: str, path: str, query: str = "", headers: Headers = (), body: Body = b"") -> str:
        """Return the header lines that sign a request, `headers` among them.

        Args:
            method: of HTTP.
            path: quoted.
            query: in its canonical form: quoted, sorted by name, each name with a `=`.
            headers: further headers that are signed; those named `x-amz-...` have to be.
            body: hashed, unless TLS and a checksum among `headers` protect it.
        """
        now = int(time.time())
        second = self._second
        if second is None or second.number != now:
            second = self._second = self._begin(now)
        payload = self._payload(headers, body) if body else _EMPTY_SHA256
        form = second.forms.get((headers, payload))
        if form is None:
            form = self._form(second, headers, payload)
            if len(second.forms) < _MAX_FORMS:
                second.forms[headers, payload] = form
        signature = second.signature(f"{method}\n{path}\n{query}{form.canonical}")
        return f"{form.lines}{signature}\r\n"

    def presigned(self, method: str, path: str, query: str, seconds: int) -> str:
        """Return the query of a request that whoever has it may send, for so many seconds; its body is not signed."""
        second = self._begin(int(time.time()))
        parameters = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": second.credential,
            "X-Amz-Date": second.stamp,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": "host",
        }
        if second.token:
            parameters[self._token_name] = second.token
        pairs = [f"{name}={urllib.parse.quote(value, safe='~')}" for name, value in parameters.items()]
        query = "&".join(sorted([*filter(None, query.split("&")), *pairs]))
        canonical = f"{method}\n{path}\n{query}\nhost:{self._host}\n\nhost\n{_UNSIGNED}"
        return f"{query}&X-Amz-Signature={second.signature(canonical)}"

    def _payload(self, headers: Headers, body: Body) -> str:
        protected = self._tls and any(header.startswith("x-amz-checksum-") for header in headers)
        sign = not protected if self._sign_payload is None else self._sign_payload
        if not sign:
            return _UNSIGNED
        found = hashlib.sha256()
        for part in parts_of(body):
            found.update(part)
        return found.hexdigest()

    def _begin(self, number: int) -> _Second:
        frozen = self._credentials.get_frozen_credentials()
        if has_breaks(f"{frozen.access_key}{frozen.token or ''}"):
            raise PermissionError(errno.EACCES, "a line break or a NUL in the access key or the session token")
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(number))
        day = stamp[:8]
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        return _Second(number, stamp, self._key(frozen.secret_key, day), scope, frozen.access_key, frozen.token)

    def _form(self, second: _Second, headers: Headers, payload: str) -> _SignedHeaders:
        sent = [*headers, f"x-amz-content-sha256:{payload}", f"x-amz-date:{second.stamp}"]
        if second.token:
            sent.append(f"{self._token_header}:{second.token}")
        lines = header_lines(sent)
        ordered = sorted((f"host:{self._host}", *map(_canonical, sent)), key=_name)
        signed = ";".join(map(_name, ordered))
        authorization = f"AWS4-HMAC-SHA256 Credential={second.credential}, SignedHeaders={signed}, Signature="
        return _SignedHeaders("\n".join(["", *ordered, "", signed, payload]), f"{lines}Authorization: {authorization}")

    def _key(self, secret: str, day: str) -> bytes:
        """Return the day's signing key."""
        key = ("AWS4" + secret).encode()
        for part in (day, self._region, self._service, "aws4_request"):
            with process.forks_deferred:
                key = hmac.digest(key, part.encode(), "sha256")
        return key


def _name(header: str) -> str:
    return header.partition(":")[0]


def _canonical(header: str) -> str:
    """Return the header with its value's runs of spaces as one."""
    return f"{_name(header)}:{' '.join(header.partition(':')[2].split())}" if " " in header else header
