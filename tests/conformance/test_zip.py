"""The conformance kit over zips on the local disk, in one another, layered."""

from __future__ import annotations

import zipfile

from fsabs.testing import SubFSSubject, layered, lazified
from tests.conformance.archives import deflated_zip_in, zip_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import WithoutProcesses


class TestZip(ContainerConformance):
    made = zip_in
    in_process = True


class TestDeflatedZip(ContainerConformance):
    made = deflated_zip_in


class TestZipInZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))


class TestZipInDeflatedZip(ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip", zipfile.ZIP_DEFLATED)))


class TestSubFSOfZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: SubFSSubject(zip_in(outer)))


class TestLayeredZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: layered(zip_in(outer)))


class TestLazifiedZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: lazified(zip_in(outer)))
