"""The test suites of other projects, run on this library: `make judges`.

Nothing of them is kept here: a package has its suite in its wheel or its source distribution, and the interpreter has
its own. A file in `shims` gives each suite what it tests. `expected.toml` names each test that does not pass, and why.
"""
