"""The conformance kit over tars on the local disk."""

from __future__ import annotations

import functools

from fsabs.testing import SubFSSubject
from tests.conformance.archives import tar_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import WithoutProcesses


class TestTar(ContainerConformance):
    made = tar_in
    in_process = True


class TestTarGz(ContainerConformance):
    made = staticmethod(functools.partial(tar_in, name="a.tar.gz"))


class TestSubFSOfTar(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: SubFSSubject(tar_in(outer)))
