"""The command line with a plain torch engine in Megatron's place: ``python -m tests.cli.torch_app train …``."""

from __future__ import annotations

from mcore_compat.cli import demo, train
from mcore_compat.cli._app import app
from mcore_compat.rl.sums import CHARACTERS
from tests.rl.torch_backend import TorchBackend


def main() -> None:
    for command in (demo, train):
        command.make_backend = lambda _: TorchBackend(len(CHARACTERS))
    app(prog_name="mcore-compat")


if __name__ == "__main__":
    main()
