"""The conformance kit over containers: each over local files, S3 and HDFS, in one another, their subfs, layered."""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest

from fsabs import Capabilities
from fsabs.testing import FSConformance, LocalSubject, SubFSSubject, Subject, layered, lazified
from tests.conformance.archives import deflated_zip_in, hdf5_in, packed_hdf5_in, tar_in, zip_in
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import HdfsSubject, S3Subject

WRITE_ONCE = Capabilities(
    write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True, versions=True
)
HDF5 = WRITE_ONCE._replace(replace=True, last_modified=False)


class ContainerConformance(FSConformance):
    """A container, `made(outer)`, in an FS of the outer subject, which `over` names."""

    capabilities = WRITE_ONCE
    live = False
    over: ClassVar[str] = "local"
    made: ClassVar[Any]
    """A function of the outer subject."""

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest) -> Iterator[Subject]:
        if self.over == "local":
            outer: Subject = LocalSubject()
        elif self.over == "hdfs":
            outer = HdfsSubject(request.getfixturevalue("hdfs"))
        else:
            outer = S3Subject(request.getfixturevalue(self.over))
        with closing(outer):
            yield type(self).made(outer)


class TestZip(ContainerConformance):
    made = zip_in
    serverless = True


class TestDeflatedZip(ContainerConformance):
    made = deflated_zip_in


class TestZipOnS3(ContainerConformance):
    made = zip_in
    over = "ceph"


class TestZipOnHdfs(WithoutProcesses, ContainerConformance):
    made = zip_in
    over = "hdfs"


class TestZipInZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))


class TestZipInDeflatedZip(ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip", zipfile.ZIP_DEFLATED)))


class TestZipInZipOnS3(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "ceph"


class TestSubFSOfZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: SubFSSubject(zip_in(outer)))


class TestLayeredZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: layered(zip_in(outer)))


class TestLazifiedZip(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: lazified(zip_in(outer)))


class TestTar(ContainerConformance):
    made = tar_in
    serverless = True


class TestTarGz(ContainerConformance):
    made = staticmethod(functools.partial(tar_in, name="a.tar.gz"))


class TestTarOnS3(WithoutProcesses, ContainerConformance):
    made = tar_in
    over = "ceph"


class TestTarOnHdfs(ContainerConformance):
    made = tar_in
    over = "hdfs"


class TestTarInZipOnS3(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: tar_in(zip_in(outer, "outer.zip")))
    over = "ceph"


class TestSubFSOfTar(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: SubFSSubject(tar_in(outer)))


class TestHdf5(ContainerConformance):
    capabilities = HDF5
    made = hdf5_in
    serverless = True


class TestHdf5OnS3(ContainerConformance):
    capabilities = HDF5
    made = hdf5_in
    over = "ceph"


class TestHdf5OnHdfs(ContainerConformance):
    capabilities = HDF5
    made = hdf5_in
    over = "hdfs"


class TestHdf5InHdf5(ContainerConformance):
    capabilities = HDF5
    made = staticmethod(lambda outer: hdf5_in(packed_hdf5_in(outer)))


class TestSubFSOfHdf5(WithoutProcesses, ContainerConformance):
    capabilities = HDF5
    made = staticmethod(lambda outer: SubFSSubject(hdf5_in(outer)))
