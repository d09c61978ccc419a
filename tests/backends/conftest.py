"""What tests of stores start from: an environment without settings of a store, and a certificate for TLS."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

import pytest


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove AWS's, S3's and a proxy's variables; `config` and `credentials` in `tmp_path` are AWS's files."""
    for name in os.environ:
        if name.startswith(("AWS_", "S3_", "BOTO")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def no_kept_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nothing on the disk that a second FS would know."""
    monkeypatch.setenv("FSABS_CACHE_DIR", "")


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a key and its self-signed certificate for 127.0.0.1; the certificate alone is in FILE.crt."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(private + made)
    Path(f"{path}.crt").write_bytes(made)
    return str(path)
