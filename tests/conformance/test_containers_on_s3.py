"""The conformance kit over containers on S3."""

from __future__ import annotations

from tests.conformance.archives import hdf5_in, tar_in, zip_in
from tests.conformance.containers import HDF5, ContainerConformance
from tests.conformance.selections import WithoutProcesses


class TestZipOnS3(ContainerConformance):
    made = zip_in
    over = "ceph"


class TestZipInZipOnS3(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "ceph"


class TestTarOnS3(WithoutProcesses, ContainerConformance):
    made = tar_in
    over = "ceph"


class TestTarInZipOnS3(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: tar_in(zip_in(outer, "outer.zip")))
    over = "ceph"


class TestHdf5OnS3(ContainerConformance):
    capabilities = HDF5
    made = hdf5_in
    over = "ceph"
