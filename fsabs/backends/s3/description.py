"""Descriptions of a bucket's access: endpoint, region, addressing and credentials, and where each was configured."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from ... import process
from .boto import is_aws, resolved_endpoint, translated
from .endpoint import UnsupportedEndpoint, resolve
from .options import Options, core_session

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


def describe(client: process.PerProcess[Any], bucket: str, options: Options) -> dict[str, str]:
    """Return how a bucket is reached, with no secret in it; each value ends in its source, in parentheses."""
    made = client.get()
    found = {"bucket": bucket, "endpoint": f"{resolved_endpoint(made)} ({_source_of_endpoint(made, options)})"}
    found["region"] = f"{made.meta.region_name} ({_source_of_region(made, options)})"
    try:
        endpoint = resolve(client, bucket, options)
    except UnsupportedEndpoint:
        found["client"] = "boto3 for all requests"
    else:
        found["address"] = f"{endpoint.host}:{endpoint.port}{endpoint.path_prefix}"
        found["tls"] = "no" if not endpoint.tls else "yes" if endpoint.verify else "yes, certificates are not checked"
        if endpoint.proxy:
            parts = urlsplit(endpoint.proxy)
            found["proxy"] = f"{parts.hostname}:{parts.port or ''}"
        found["attempts"] = f"{endpoint.max_attempts} (retry mode {endpoint.retry_mode})"
    found["credentials"] = source_of_credentials(made, options)
    return found


def source_of_credentials(client: Any, options: Options) -> str:
    """Return where the credentials of a client come from."""
    if options.anonymous:
        return "none: anonymous=True"
    with translated():
        found = client._request_signer._credentials
    if found is None:
        return "none found: requests are refused unless the bucket is public (anonymous=True)"
    source = _SOURCES.get(found.method, str(found.method))
    if found.method == "explicit" and options.session is not None:
        source = "session"
    profile = options.profile or os.environ.get("AWS_PROFILE")
    return f"{source}, profile {profile}" if profile and found.method not in ("explicit", "env") else source


def _source_of_endpoint(client: Any, options: Options) -> str:
    if options.endpoint:
        return "option endpoint"
    for name in ("S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return f"${name}"
    return "default" if is_aws(client) else "AWS configuration file"


def _source_of_region(client: Any, options: Options) -> str:
    if options.region:
        return "option region"
    if options.session is not None and core_session(options.session).get_config_variable("region"):
        return "session"
    if os.environ.get("AWS_DEFAULT_REGION"):
        return "$AWS_DEFAULT_REGION"
    return "default" if client.meta.region_name == "us-east-1" else "AWS configuration file"
