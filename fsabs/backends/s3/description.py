"""Descriptions of a bucket's access: endpoint, region, addressing and credentials, and where each was configured."""

from __future__ import annotations

import os

from ..objects.endpoints import described
from .endpoint import DEFAULT_REGION, ENDPOINT_VARIABLES, Place, is_aws, resolve
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
        advice = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; anonymous=True for a public bucket"
        return f"none found: {advice}"
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
