"""A draft model for a server: a model's own first layers, with its embeddings, last norm and head, as a checkpoint.

    python -m benchmarks.shallow_draft smollm2-135m 10 drafts/smollm2-135m-10

It is not trained for it, so few of its drafts are right: for showing that a server's draft model is started and counted.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from harness.models.pretrained import found_folder

LAYER = re.compile(r"model\.layers\.(\d+)\.")


def shallow(source: Path, layers: int, target: Path) -> None:
    """Write the first ``layers`` layers of ``source`` to ``target``."""
    config = json.loads((source / "config.json").read_text())
    if not 1 <= layers < config["num_hidden_layers"]:
        raise SystemExit(f"{layers} of {config['num_hidden_layers']} layers; allowed are 1 to one fewer than all")
    target.mkdir(parents=True)
    for file in source.glob("tokenizer*"):
        shutil.copy(file, target)
    (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}, indent=1))
    kept = {
        name: tensor
        for name, tensor in load_file(source / "model.safetensors").items()
        if (found := LAYER.match(name)) is None or int(found[1]) < layers
    }
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    shallow(found_folder(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
