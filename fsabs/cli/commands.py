"""The commands of `fsabs`: a module of this package each, with a click command or group called `command`.

The module is imported when its command is run: `fsabs --help` needs only the line.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandLine(NamedTuple):
    """A command of `COMMANDS`."""

    module: str
    """The module of this package that has it as `command`."""
    help: str
    """One sentence, for `fsabs --help`."""


COMMANDS = {
    "bench": CommandLine("bench", "Measure how fast a data set can be read, and what settings are best."),
    "cache": CommandLine("cache", "Show, fill, empty and check the cache."),
    "cat": CommandLine("cat", "Write files to the standard output."),
    "completion": CommandLine("completion", "Write the script by which a shell completes fsabs."),
    "config": CommandLine("config", "Show and check the configuration."),
    "convert": CommandLine("convert", "Write a container in another format."),
    "cp": CommandLine("cp", "Copy files and trees between any two places."),
    "diff": CommandLine("diff", "Show what differs between two files or trees."),
    "doctor": CommandLine("doctor", "Check this machine, and the way to a store."),
    "du": CommandLine("du", "Sum up the bytes and files below paths."),
    "explain": CommandLine("explain", "Show how a URL resolves, and what it costs to read."),
    "find": CommandLine("find", "Find files by name, size or time."),
    "head": CommandLine("head", "Write the first lines of files."),
    "job": CommandLine("job", "Create a job whose tasks are dispatched to workers."),
    "ls": CommandLine("ls", "List directories and containers."),
    "manifest": CommandLine("manifest", "Write, check and merge manifests, which pin data sets."),
    "mkdir": CommandLine("mkdir", "Make directories."),
    "mv": CommandLine("mv", "Move files and trees between any two places."),
    "pack": CommandLine("pack", "Pack a directory into a container."),
    "pfs": CommandLine("pfs", "List, copy, make and remove files of datacenters: /pfs/DATACENTER/..."),
    "prepare": CommandLine("prepare", "Make RecordIO or token files of raw files, here or on a Spark cluster."),
    "repair": CommandLine("repair", "Replace damaged RecordIO files by what is good in them."),
    "rm": CommandLine("rm", "Remove files and trees."),
    "samples": CommandLine("samples", "Show where the samples of a training step came from."),
    "stat": CommandLine("stat", "Show what is known of files without reading them."),
    "sync": CommandLine("sync", "Make a directory equal to another one."),
    "tail": CommandLine("tail", "Write the last lines of files."),
    "tasks": CommandLine("tasks", "Show and steer a job whose tasks are dispatched to workers."),
    "trace": CommandLine("trace", "Show what a trace has recorded."),
    "tree": CommandLine("tree", "Show a directory as a tree."),
    "unpack": CommandLine("unpack", "Unpack a container into a directory."),
    "verify": CommandLine("verify", "Read containers and RecordIO files, and show what is damaged."),
}
