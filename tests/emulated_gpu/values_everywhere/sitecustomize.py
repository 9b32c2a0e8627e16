"""Python imports this module at its start: the process and its children compute values as soon as they have torch."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder


class AfterTorch(PathFinder):
    """Finds torch as always, and enters the values behind its import."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """None for every other module. It stays in its place: programs ask for torch before they import it."""
        spec = super().find_spec(name, path, target) if name == "torch" else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                cls.enter()

            spec.loader.exec_module = exec_module
        return spec

    @staticmethod
    def enter():
        """For as long as the process lives."""
        import torch

        if torch.cuda.is_available():
            from tests.emulated_gpu.values import values

            AfterTorch.entered = values()
            AfterTorch.entered.__enter__()


sys.meta_path.insert(0, AfterTorch)
