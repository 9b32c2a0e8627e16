"""On a path that Python looks for its site's settings: transformers' generate() writes to its length without any value.

It asks the device whether all rows are done. Where nothing is computed, that is true behind the prompt already.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder


class AfterGeneration(PathFinder):
    """Finds transformers' loop as always, and makes it count."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """None for every other module."""
        if name != "transformers.generation.utils":
            return None
        sys.meta_path.remove(cls)
        spec = super().find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            counts(module.GenerationMixin)

        spec.loader.exec_module = exec_module
        return spec


def counts(mixin):
    """Tokens that are left to write stand for the answer of the device."""
    sample = mixin._sample

    def counted(self, input_ids, logits_processor, stopping_criteria, generation_config, *more, **options):
        self._tokens_left = generation_config.max_length - input_ids.shape[1]
        return sample(self, input_ids, logits_processor, stopping_criteria, generation_config, *more, **options)

    def unfinished(self, this_peer_finished, synced_gpus, device):
        self._tokens_left -= 1
        return self._tokens_left >= 0

    mixin._sample, mixin._has_unfinished_sequences = counted, unfinished


sys.meta_path.insert(0, AfterGeneration)
