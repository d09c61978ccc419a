"""The build: setup.cfg has everything but `fsabs_patch.pth`, which no declaration can put beside the package.

Python reads that file at its start. It applies `$FSABS_PATCH` to programs that never import fsabs, and does nothing if
the variable is not set.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithStartup(build_py):
    """Copies the file beside the packages, which are in the folder itself in an editable installation."""

    startup = "fsabs_patch.pth"

    def run(self) -> None:
        super().run()
        target = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        shutil.copyfile(Path(__file__).with_name(self.startup), Path(target) / self.startup)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        found = super().get_outputs(include_bytecode)
        return found if self.editable_mode else [*found, str(Path(self.build_lib) / self.startup)]


setup(cmdclass={"build_py": BuildWithStartup})
