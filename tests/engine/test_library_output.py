"""transformers' bars feed ours and draw none of their own; its remarks are back afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils import logging

from harness.engine.checkpoints import libraries_silent
from harness.models.gguf_header import gguf_config
from harness.progress import hearing
from tests.helpers.gguf_files import write_gguf


def test_a_bar_of_transformers_tells_its_share_and_draws_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """By iteration and by hand; what only changes a bar's look does nothing."""
    told: list[float] = []
    with libraries_silent(), hearing(told.append):
        assert list(logging.tqdm(["a", "b"], desc="Loading weights")) == ["a", "b"]
        with logging.tqdm(total=4) as bar:
            bar.update(3)
            bar.set_postfix(name="x")
        logging.get_logger("transformers").warning("a remark")
    assert told == [0.5, 1.0, 0.75]
    assert capfd.readouterr().err == ""


def test_the_bar_over_a_gguf_file_is_one_of_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is drawn by a module that asks for its bar in another way."""
    write_gguf(tmp_path / "x.gguf")
    told: list[float] = []
    with libraries_silent(), hearing(told.append):
        model = LlamaForCausalLM(AutoConfig.for_model(**gguf_config(tmp_path / "x.gguf")))
        load_gguf_checkpoint(str(tmp_path / "x.gguf"), return_tensors=True, model_to_load=model)
    assert told[-1] == 1 and len(told) > 10 and capfd.readouterr().err == ""


def test_what_was_set_is_set_again() -> None:
    """Outside, transformers does as its user has it."""
    before = logging.get_verbosity()
    with libraries_silent():
        assert logging.get_verbosity() == logging.ERROR
    assert logging.get_verbosity() == before and not hasattr(logging.tqdm([]), "_iterable")
