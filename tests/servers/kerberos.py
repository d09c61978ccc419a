"""A real Kerberos for tests: MIT's KDC from Debian, on loopback, with a realm of its own in a temporary folder.

`KeyDistributionCenter` makes principals and their keytabs; `login` writes a ticket cache. Nothing here imports pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers import debian
from tests.servers.process import Server

_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user")
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = "/usr/sbin:/sbin"  # where Debian keeps the programs of servers
REALM = "FSABS.TEST"

_CLIENT = """
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_SERVER = """
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {root}/principal
  key_stash_file = {root}/stash
  acl_file = {root}/acl
 }}
"""


def missing() -> str | None:
    """Returns None when a KDC can be started here, else a sentence that names the command to run."""
    if any(_program(name) is None for name in _PROGRAMS):
        return f"The tests of Kerberos need MIT's KDC: run `{debian.command(*_PACKAGES)}` as root."
    return None


def install() -> None:
    """Installs Debian's packages when they are missing; needs root or a `sudo` that asks no password."""
    debian.install(missing, *_PACKAGES)


class KeyDistributionCenter(Server):
    """The KDC of the realm `REALM`."""

    missing = staticmethod(missing)
    name = "kerberos"

    @property
    def configuration(self) -> Path:
        """The `krb5.conf` of clients: the value of `KRB5_CONFIG`."""
        return self.folder / "krb5.conf"

    def prepare(self) -> None:
        """Make the realm."""
        super().prepare()
        self.configuration.write_text(_CLIENT.format(realm=REALM, port=self._port))
        (self.folder / "kdc.conf").write_text(_SERVER.format(realm=REALM, port=self._port, root=self.folder))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "secret")
        self.add("probe")

    def launch(self) -> None:
        """Start the KDC."""
        self.spawn("krb5kdc", [_found("krb5kdc"), "-n"], self._environment())

    def probe(self) -> bool:
        """Return True if the KDC gives a ticket."""
        try:
            self.login("probe", self.folder / "probe")
        except subprocess.CalledProcessError:
            return False
        return True

    def add(self, principal: str) -> Path:
        """Makes a principal of the realm; returns the keytab with its key."""
        keytab = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -norandkey -k {keytab} {principal}")
        return keytab

    def login(self, principal: str, cache: Path, lifetime: str = "1h") -> None:
        """Writes a ticket cache of a principal that `add` has made."""
        keytab = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), "-l", lifetime, principal)

    def _environment(self) -> dict[str, str]:
        profile = str(self.folder / "kdc.conf")
        return {**os.environ, "KRB5_CONFIG": str(self.configuration), "KRB5_KDC_PROFILE": profile}

    def _run(self, name: str, *arguments: str) -> None:
        command, log = [_found(name), *arguments], self.folder / "log"
        with log.open("ab") as output:
            subprocess.run(command, env=self._environment(), stdout=output, stderr=output, check=True, timeout=60)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_PATH)


def _found(name: str) -> str:
    path = _program(name)
    assert path is not None
    return path
