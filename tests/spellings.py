"""URLs and options with a secret in them, as many spell them."""

from __future__ import annotations

from typing import Any

SECRET = "hunter-2_secret"
NAMES = (
    *("sig", "X-Amz-Signature", "X-Amz-Credential", "X-Goog-Signature", "AWSAccessKeyId", "Policy", "st", "sv"),
    *("token", "access_token", "pageToken", "key", "apikey", "api_key", "k", "pwd", "pass", "pw", "password"),
    *("code", "jwt", "auth", "u", "ticket", "cookie", "sid", "otp", "client_secret", "whatever"),
)
"""Names of fields of a query."""
URLS = [
    f"https://user:{SECRET}@127.0.0.1:1/x",
    f"https://{SECRET}@127.0.0.1:1/x",
    f"https://user:p@{SECRET}@127.0.0.1:1/x",
    f"ftp://user:{SECRET}@127.0.0.1:1/x",
    f"sftp://user:p/{SECRET}@127.0.0.1:1/x",
    *(f"http://127.0.0.1:1/x?{name}={SECRET}" for name in NAMES),
    f"http://127.0.0.1:1/x?page=2&id_token={SECRET}",
    f"http://127.0.0.1:1/x?page=2;sig={SECRET}",
    f"http://127.0.0.1:1/x?sig=a'{SECRET}",
    f"http://127.0.0.1:1/x?sig=a({SECRET})b",
    f"http://127.0.0.1:1/x#access_token={SECRET}",
    f"http://127.0.0.1:1/x?url=https%3A%2F%2Fuser%3A{SECRET}%40host",
    f"http://127.0.0.1:1/x?path=a%3Fsig%3D{SECRET}",
    f"http:///user:{SECRET}@127.0.0.1:1/x",
    f"postgresql://user:{SECRET}@127.0.0.1:1/db",
    f"postgresql://user@127.0.0.1:1/db?password={SECRET}&sslmode=require",
]
SPELLINGS = [url for url in URLS if not any(f"x?{name}=" in url for name in NAMES[1:])]
"""Of those that differ in the name of a field alone, one."""
OPTIONS: list[tuple[str, Any]] = [
    *(
        (name, SECRET)
        for name in (
            *("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "sse_customer_key", "account_key"),
            *("password", "passwd", "PassWord", "pwd", "pass", "pw", "secret", "token", "key", "api-key", "auth"),
            *("sas_token", "jwt", "pat", "pin", "otp", "cookie", "login", "private_key", "session", "whatever"),
        )
    ),
    ("connection_string", f"DefaultEndpointsProtocol=https;AccountName=me;AccountKey={SECRET}==;EndpointSuffix=x"),
    ("endpoint", f"AccountName=me;AccountKey={SECRET}=="),
    ("endpoint", f"http://me:{SECRET}@127.0.0.1:9000/"),
    ("endpoint", f"http://me:p,{SECRET}@127.0.0.1:9000/"),
    ("endpoint", f"http://me:{SECRET};p@127.0.0.1:9000/"),
    ("endpoint", f"http://127.0.0.1:9000/?sig={SECRET}"),
    ("endpoint", f'{{"token": "{SECRET}"}}'),
    ("endpoint", f"me:{SECRET}@127.0.0.1:9000"),
    ("dsn", f"postgresql://me:{SECRET}@host/db"),
    ("headers", {"Authorization": f"Bearer {SECRET}"}),
    ("headers", f'{{"Authorization": "Bearer {SECRET}"}}'),
    ("headers", [("Authorization", f"Bearer {SECRET}")]),
    ("storage_options", {"token": SECRET}),
    ("client_kwargs", {"headers": {"X-Key": SECRET}}),
    ("metadata", {"owner": SECRET}),
    ("proxies", {"http": f"http://me:{SECRET}@proxy"}),
    ("cache", {"dir": "/x", "headers": {"a": [SECRET]}}),
    ("cache", f"dir=/x, key={SECRET}"),
    ("http_cache", {"url": f"http://me:{SECRET}@host", "bearer_token": SECRET}),
    ("client_certificate", f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n"),
    ("verify", SECRET.encode()),
]
