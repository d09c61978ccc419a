"""The version of PFIO whose interface this is."""

__version__ = "2.10.0"
