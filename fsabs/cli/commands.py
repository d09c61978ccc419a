"""The commands of `fsabs`: a click command or group in a module of this package each.

The module is imported when its command is run: `fsabs --help` needs only the line.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandLine(NamedTuple):
    """A command of `COMMANDS`."""

    module: str
    """The module of this package that has it."""
    help: str
    """One sentence, for `fsabs --help`."""
    name: str = "command"
    """Its name there."""


COMMANDS = {
    "bench": CommandLine("bench", "Measure how fast a data set can be read, and what settings are best."),
    "cache": CommandLine("cache", "Show, fill, empty and check the cache."),
    "cat": CommandLine("content", "Write files to the standard output.", "cat"),
    "completion": CommandLine("completion", "Write the script by which a shell completes fsabs."),
    "config": CommandLine("config", "Show and check the configuration."),
    "convert": CommandLine("packing", "Write a container in another format.", "convert"),
    "cp": CommandLine("copying", "Copy files and trees between any two places.", "cp"),
    "diff": CommandLine("diff", "Show what differs between two files or trees."),
    "doctor": CommandLine("doctor", "Check this machine, and the way to a store."),
    "du": CommandLine("listing", "Sum up the bytes and files below paths.", "du"),
    "explain": CommandLine("explain", "Show how a URL resolves, and what it costs to read."),
    "find": CommandLine("listing", "Find files by name, size or time.", "find"),
    "head": CommandLine("content", "Write the first lines of files.", "head"),
    "job": CommandLine("tasks", "Create a job whose tasks are dispatched to workers.", "job"),
    "ls": CommandLine("listing", "List directories and containers.", "ls"),
    "manifest": CommandLine("manifest", "Write, check and merge manifests, which pin data sets."),
    "mkdir": CommandLine("changing", "Make directories.", "mkdir"),
    "mv": CommandLine("copying", "Move files and trees between any two places.", "mv"),
    "pack": CommandLine("packing", "Pack a directory into a container.", "pack"),
    "pfs": CommandLine("pfs", "List, copy, make and remove files of datacenters: /pfs/DATACENTER/..."),
    "prepare": CommandLine("prepare", "Make RecordIO or token files of raw files, here or on a Spark cluster."),
    "repair": CommandLine("verifying", "Replace damaged RecordIO files by what is good in them.", "repair"),
    "rm": CommandLine("changing", "Remove files and trees.", "rm"),
    "samples": CommandLine("samples", "Show where the samples of a training step came from."),
    "stat": CommandLine("listing", "Show what is known of files without reading them.", "stat"),
    "sync": CommandLine("copying", "Make a directory equal to another one.", "sync"),
    "tail": CommandLine("content", "Write the last lines of files.", "tail"),
    "tasks": CommandLine("tasks", "Show and steer a job whose tasks are dispatched to workers.", "tasks"),
    "trace": CommandLine("trace", "Show what a trace has recorded."),
    "tree": CommandLine("listing", "Show a directory as a tree.", "tree"),
    "unpack": CommandLine("packing", "Unpack a container into a directory.", "unpack"),
    "verify": CommandLine("verifying", "Read containers and RecordIO files, and show what is damaged.", "verify"),
}
