"""Training recipes: what a file may say, what its training is modelled to take, and one from end to end at tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from harness.cli.train import render_plan, shape_of_recipe
from harness.engine.attention_masks import attention_input
from harness.errors import ScenarioError, UserError
from harness.models import shape_from_config
from harness.record.store import read_run
from harness.training.recipe import TrainRecipe, activation_bytes, load_recipe, training_cost
from harness.training.reference import train_tokenizer
from harness.training.trainer import Collator, TrainingConfig, train
from tests.helpers import ROOT
from tests.helpers.command import sbd_process
from tests.helpers.training_examples import EXAMPLES, IDS

RECIPE = """\
version: 1
name: tiny
model: source
data: pairs.jsonl
sequence_tokens: 24
steps: 4
batch_size: 2
accumulate: 2
learning_rate: 1.0e-3
warmup_steps: 1
checkpoint_activations: true
bf16: false
"""
TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}


def write(folder: Path, text: str = RECIPE) -> Path:
    """A recipe beside its data and an empty folder in place of a model."""
    (folder / "source").mkdir(exist_ok=True)
    (folder / "pairs.jsonl").write_text('{"prompt": "1", "solution": "2"}\n')
    (folder / "r.yaml").write_text(text)
    return folder / "r.yaml"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("steps: 4", "step: 4", 6, "did you mean 'steps'"),
        ("steps: 4", "steps: 0", 6, "greater than or equal to 1"),
        ("steps: 4\n", "", 1, "steps: the key is required"),
        ("learning_rate: 1.0e-3", "learning_rate: 1e_3", 9, "without quotes"),
        ("data: pairs.jsonl", "data: nothing.jsonl", 4, "give a path that exists"),
        ("data: pairs.jsonl\n", "", 1, "exactly one of data, dataset"),
        ("model: source", "model: ./nowhere", 3, "give a path that exists"),
        ("data: pairs.jsonl", "dataset: {path: pairs.jsonl, prompt: '{prompt}'}", 1, "answer is missing"),
    ],
)
def test_a_mistake_is_named_with_line_and_remedy(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    """As in a scenario."""
    assert old in RECIPE
    with pytest.raises(ScenarioError) as caught:
        load_recipe(write(tmp_path, RECIPE.replace(old, new)))
    assert str(caught.value).startswith(f"{tmp_path / 'r.yaml'}:{line}: ") and words in str(caught.value)


def test_paths_are_meant_from_the_file(tmp_path: Path) -> None:
    """A folder that is there is a model on disk, anything else a hub id."""
    assert load_recipe(write(tmp_path)).model == str(tmp_path / "source")
    assert load_recipe(write(tmp_path, RECIPE.replace("model: source", "model: org/name"))).model == "org/name"
    with pytest.raises(ScenarioError, match="shipped name: qwen3_0_6b"):
        load_recipe(Path("nothing"))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainRecipe:
    """The shipped recipe, with its dataset's commit in a cache made up for it."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    refs = tmp_path / "datasets--meta-math--MetaMathQA" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("e" * 40)
    return load_recipe(Path("qwen3_0_6b"))


def test_the_page_shows_what_the_plan_computes(shipped: TrainRecipe) -> None:
    """Every line of the plan stands in the page, so that no figure goes stale; Qwen3-0.6B has 596,049,920 parameters."""
    page = (ROOT / "docs" / "recipe_qwen3_0_6b.md").read_text(encoding="utf-8")
    plan = render_plan(shipped)
    assert "596,049,920 parameters" in plan
    for line in plan.splitlines():
        assert line in page, line


def test_the_plan_by_hand(shipped: TrainRecipe) -> None:
    """Hand-worked: 16 bytes of state a parameter; 8,192 positions of 8 doubled pairs; 2 FLOP a matrix element and position,
    attention (28 layers, 16 heads of 128, 1,024 keys, twice) on top; forward, backward and forward again.
    """
    cost = training_cost(shipped, shape_of_recipe(shipped))
    assert cost.positions == 8 * 2 * 512 == 8192
    assert cost.state_bytes == 16 * 596_049_920
    norms = 28 * (2 * 1024 + 2 * 128) + 1024
    matrices = 2 * (596_049_920 - norms)
    attention = 28 * 16 * 128 * 1024 * 4
    assert cost.forward_flops == pytest.approx(8192 * (matrices + attention), rel=1e-9)
    assert cost.total_flops == pytest.approx(12_000 * 4 * 4 * cost.forward_flops)
    assert cost.seconds(1e15, 0.5) == pytest.approx(cost.total_flops / 5e14)


@pytest.mark.parametrize("objective", ["sbd", "ntp"])
def test_flops_are_those_that_torch_counts(objective: str, tmp_path: Path) -> None:
    """Forward and backward on a real module, operation by operation; with eager attention, which torch can count."""
    recipe = load_recipe(write(tmp_path, RECIPE.replace("checkpoint_activations: true", f"objective: {objective}")))
    config = transformers.Qwen3Config(vocab_size=60, **TINY)
    torch.manual_seed(0)
    with torch.enable_grad():
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").train()
        width = recipe.sequence_tokens * (2 if objective == "sbd" else 1)
        visible = torch.ones(recipe.batch_size, width, width, dtype=torch.bool)
        with FlopCounterMode(display=False) as counter:
            logits = model(
                input_ids=torch.zeros(recipe.batch_size, width, dtype=torch.long),
                use_cache=False,
                attention_mask=attention_input(visible, "eager", torch.float32),
            ).logits
            forward = counter.get_total_flops()
            logits.float().logsumexp(-1).sum().backward()
    cost = training_cost(recipe, shape_from_config("tiny", config.to_dict()))
    assert forward == cost.forward_flops
    assert counter.get_total_flops() * recipe.accumulate == cost.step_flops


@pytest.mark.parametrize(("mixed", "checkpointed"), [(True, False), (False, False), (True, True)])
def test_activations_are_what_autograd_keeps(mixed: bool, checkpointed: bool) -> None:
    """Every tensor that a real forward pass saves for its backward pass, each storage once, parameters and their bfloat16
    copies left out: within 10 % of the count. With checkpointing the one layer that comes back is not saved in the forward.
    """
    rows, width = 2, 40
    wider = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 8}
    config = transformers.Qwen3Config(vocab_size=60, **{**TINY, **wider})
    torch.manual_seed(0)
    saved = {}
    with torch.enable_grad():
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
        if checkpointed:
            model.activation_checkpointing_enable()
        own = {tuple(one.shape) for one in model.parameters()}
        own |= {one[::-1] for one in own}

        def note(tensor):
            if tuple(tensor.shape) not in own:
                saved[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is used twice
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda one: one)
        with hooks, torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            model.model(
                input_ids=torch.zeros(rows, width, dtype=torch.long),
                use_cache=False,
                attention_mask=torch.ones(rows, 1, width, width, dtype=torch.bool),
            )
    found = sum(one.untyped_storage().nbytes() for one in saved.values())
    shape = shape_from_config("tiny", config.to_dict())
    modelled = activation_bytes(shape, rows * width, width, mixed=mixed, checkpointed=checkpointed)
    if checkpointed:
        one_layer = activation_bytes(shape, rows * width, width, mixed=mixed, checkpointed=False) / shape.layers
        modelled -= one_layer
        found -= 2 * rows * width * shape.hidden * 4  # what the last norm keeps
    assert modelled == pytest.approx(found, rel=0.1)


def test_accumulated_batches_weigh_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a step over the same batch twice is that of the batch, not twice it; both with the same masks."""
    monkeypatch.setattr(Collator, "batches", property(lambda self: 0, lambda self, number: None), raising=False)

    def gradient(accumulate: int, checkpointed: bool) -> float:
        torch.manual_seed(0)
        with torch.enable_grad():
            model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(vocab_size=93, **TINY))
            out = tmp_path / f"{accumulate}-{checkpointed}"
            config = TrainingConfig(
                output_dir=out,
                steps=1,
                batch_size=2,
                accumulate=accumulate,
                checkpoint_activations=checkpointed,
                learning_rate=1e-3,
                warmup_steps=0,
                cpu=True,
                save_steps=1,
                log_steps=1,
                sampling="sequential",
            )
            train(config, model, EXAMPLES * accumulate, IDS)
        log = json.loads((out / "checkpoint-1" / "trainer_state.json").read_text())["log_history"]
        [norm] = [entry["grad_norm"] for entry in log if "grad_norm" in entry]
        return float(norm)

    alone = gradient(1, False)
    assert gradient(2, False) == pytest.approx(alone, rel=1e-4)
    assert gradient(1, True) == pytest.approx(alone, rel=1e-4)


@pytest.mark.long
def test_a_recipe_runs_from_end_to_end(tmp_path: Path) -> None:
    """A tiny random Qwen3 with its tokenizer on disk is trained by a recipe on a dataset and then decoded by `sbd run`.

    Pairs that are too long are left out and counted; the config names the mask, and NTP and both SBD arms decode.
    """
    tokenizer = train_tokenizer(["two and two is four", "three and one is four"] * 20, 300)
    tokenizer.mask_token = None  # as Qwen3's: training gives it one
    config = transformers.Qwen3Config(vocab_size=len(tokenizer) + 8, eos_token_id=tokenizer.eos_token_id, **TINY)
    transformers.Qwen3ForCausalLM(config).save_pretrained(tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "source")
    pairs = [{"prompt": f"{n} and 1 is ", "solution": str(n + 1)} for n in range(40)] + [{"prompt": "2 " * 40, "solution": "3"}]
    file = write(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    done = sbd_process("train", "--recipe", str(file), "--out", str(tmp_path / "out"), "--cpu")
    assert done.returncode == 0, done.stderr
    assert "40 of 41 pairs have at most 24 tokens" in done.stdout
    trained = json.loads((tmp_path / "out" / "config.json").read_text())
    assert trained["mask_token_id"] == transformers.AutoTokenizer.from_pretrained(tmp_path / "out").mask_token_id
    assert trained["use_cache"] is True
    (tmp_path / "s.yaml").write_text("""\
version: 1
name: trained
parts:
  - name: one
    model: {huggingface: out}
    dtype: float32
    arms: [{method: ntp}, {method: sbd, block_size: 8, gamma: 0.35}, {method: sbd_verified, block_size: 8, gamma: 0.35}]
    workload: {prompts_file: prompts.jsonl, max_new_tokens: 12}
    timed: false
""")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "3 and 1 is ", "answer": "4"}\n')
    run = sbd_process("run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "run"), "--no-report")
    assert run.returncode == 0, run.stderr
    samples = read_run(tmp_path / "run").samples
    assert len(samples) == 3 and all(row.output_tokens for sample in samples for row in sample.rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipe", "qwen", "--model", "x"], "give either --reference STAGE, or --model with --data, or --recipe FILE"),
        (["--plan"], "give either"),
        (["--model", "x", "--data", "y", "--plan"], "--plan and --hardware need --recipe"),
        (["--recipe", "RECIPE", "--steps", "3"], "--steps beside --recipe"),
        (["--recipe", "RECIPE"], "--out FOLDER is missing"),
        (["--recipe", "RECIPE", "--plan", "--hardware", "h1000"], "h1000"),
        (["--recipe", "smollm2_135m_adapter", "--plan"], "this recipe trains an adapter"),
        (["--recipe", "smollm2_135m_adapter_gpu"], "--out FOLDER is missing"),
    ],
)
def test_mistakes_on_the_command_line_are_explained(arguments: list[str], words: str, tmp_path: Path) -> None:
    """Exit code 2, no traceback."""
    file = write(tmp_path)
    (tmp_path / "source" / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 60, **TINY}))
    done = sbd_process("train", *(str(file) if one == "RECIPE" else one for one in arguments))
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_model_whose_shape_is_not_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is downloaded for a plan."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    recipe = load_recipe(write(tmp_path, RECIPE.replace("model: source", "model: org/name")))
    with pytest.raises(UserError, match="org/name: its shape is not known"):
        render_plan(recipe)
