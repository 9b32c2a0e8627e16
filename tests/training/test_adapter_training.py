"""A gated adapter trained on a model's own answers: what is masked, what it sees, what is counted, and a run that goes on."""

from __future__ import annotations

import json
import math
import random
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from harness.decoding.in_turn import InTurn
from harness.decoding.request import StopRule
from harness.decoding.self_speculation import decode_quadratic
from harness.engine.adapter_files import write_adapter
from harness.engine.gated_adapter import adapter_on
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from harness.errors import UnknownModelError
from harness.progress import Progress
from harness.training import curve as curve_module
from harness.training.adapter_module import TrainedAdapter
from harness.training.curve import Curve, HeldOutFigures, doubling_gain, held_out_figures, passes_of
from harness.training.distillation import Batch, OwnAnswer, _answered, finished_lines
from harness.training.masked_blocks import AnswerStream, BlockCollator, drawn_blocks, masked_blocks, who_sees
from harness.training.noising import IGNORE, SpecialIds
from harness.training.recipe import AdapterSettings, Distillation, TrainRecipe
from harness.training.reference import train_tokenizer
from harness.workloads.loader import PromptItem
from tests.helpers.command import sbd_process
from tests.helpers.tiny_model import request

IDS = SpecialIds(pad=0, eos=1, mask=5)
SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


@pytest.fixture(autouse=True)
def gradients():
    """Loading a model to decode with switches them off for good; whichever test did so ran before."""
    with torch.set_grad_enabled(True):
        yield


def answer(prompt: int, length: int, *, stopped: bool = True, name: str = "lists/train/1/0") -> OwnAnswer:
    """An answer of distinct tokens."""
    ids = [6 + (at * 7) % 30 for at in range(prompt + length)]
    return OwnAnswer(
        prompt=name,
        temperature=0.0,
        prompt_ids=ids[:prompt],
        stopped=stopped,
        answer_ids=[*ids[prompt:-1], IDS.eos if stopped else 9],
    )


def model(dtype: Any = torch.float64) -> Any:
    """A tiny Llama of random weights that are large enough to say different things."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**SHAPE, initializer_range=0.6)
    return transformers.LlamaForCausalLM(config).to(dtype).eval()


def trained(settings: AdapterSettings, dtype: Any = torch.float64) -> TrainedAdapter:
    """The model with an adapter whose terms are not 0."""
    made = TrainedAdapter(model(dtype), settings, IDS.mask)
    with torch.no_grad():
        for up in made.up:
            up.normal_(std=0.3)
        if settings.bigram_rank:
            made.bigram_up.normal_()
    return made.to(dtype)


def test_blocks_hold_masks_and_targets_by_hand() -> None:
    """Behind an answer that stopped: end-of-sequence; behind one that was cut: nothing."""
    told, cut = answer(2, 3), answer(2, 2, stopped=False)
    masked = torch.tensor([[[True, True, True]], [[False, True, True]]])
    made = masked_blocks([told, cut], [[4], [3]], 3, IDS, masked)
    assert made.clean.tolist() == [[*told.prompt_ids, *told.answer_ids], [*cut.prompt_ids, *cut.answer_ids, IDS.pad]]
    assert made.slots.tolist() == [[[IDS.mask] * 3], [[9, IDS.mask, IDS.mask]]]
    assert made.targets.tolist() == [[[IDS.eos] * 3], [[IGNORE] * 3]]


def test_a_block_sees_the_clean_tokens_before_it_and_itself() -> None:
    """Pair by pair, from the definition."""
    made = drawn_blocks([answer(3, 9), answer(5, 12)], AdapterSettings(slots=20, block_sizes=(3, 3)), IDS, random.Random(1))
    positions, visible = who_sees(made)
    clean = made.clean.shape[1]
    for row, starts in enumerate(made.starts.tolist()):
        for query in range(positions.shape[1]):
            block = query // 3
            assert positions[row, query] == starts[block] + query % 3
            for key in range(clean + positions.shape[1]):
                expected = key < starts[block] if key < clean else (key - clean) // 3 == block
                assert visible[row, query, key] == expected


def test_the_logits_are_those_of_the_decoders_model_call() -> None:
    """Blocks over a clean half that is kept give what one call over each prefix and its block gives."""
    made = drawn_blocks([answer(3, 9), answer(5, 12)], AdapterSettings(slots=12, block_sizes=(4, 4)), IDS, random.Random(2))
    module = trained(AdapterSettings(mask_token_id=IDS.mask))
    [held] = module._held
    together = module.logits(made).detach().view(*made.slots.shape, -1)
    table = held.get_input_embeddings().weight
    for row, starts in enumerate(made.starts.tolist()):
        for block, start in enumerate(starts):
            slots = made.slots[row, block]
            embedded = torch.where((slots == IDS.mask)[:, None], module.mask_embedding, table[slots])
            fed = torch.cat([table[made.clean[row, :start]], embedded])[None]
            visible = torch.ones(1, 1, start + 4, start + 4, dtype=torch.bool).tril()
            visible[..., start:, :] = True
            with adapter_on(held, ((start, start + 4),)):
                alone = held(inputs_embeds=fed, attention_mask=visible, use_cache=False).logits[0, start:]
            assert (together[row, block] - alone).abs().max() < 1e-4, "attention is in float32"


def test_the_clean_half_has_no_gradient_and_the_model_does_not_change() -> None:
    """A step moves the adapter alone."""
    module = trained(AdapterSettings(mask_token_id=IDS.mask), torch.float32)
    [held] = module._held
    before = {name: one.clone() for name, one in held.named_parameters() if not name.endswith(("down", "up"))}
    made = BlockCollator(AdapterSettings(slots=12), IDS, 1)([answer(3, 9), answer(5, 12)])
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module(**made)["loss"].backward()
    learnt = [one for one in module.parameters() if one.requires_grad]
    assert len(learnt) == len(module.means) and all(one.grad is not None and one.grad.abs().sum() > 0 for one in learnt)
    optimizer.step()
    now = dict(held.named_parameters())
    assert all(torch.equal(now[name], one) for name, one in before.items())
    assert module.charged == (made["targets"] != IGNORE).sum()


@pytest.mark.parametrize(("bigram_rank", "copies"), [(0, False), (3, False), (3, True)])
def test_counted_passes_are_those_of_a_real_decode(bigram_rank: int, copies: bool) -> None:
    """On greedy answers of a tiny model, the count by one forward is the number of passes that decode_quadratic makes."""
    settings = AdapterSettings(mask_token_id=IDS.mask, bigram_rank=bigram_rank)
    module, size = trained(settings), 4
    [held] = module._held
    session, agreed = TransformersSession(held, "sdpa"), 0
    for start in range(6):
        prompt = tuple(6 + (start * 5 + at * 3) % 30 for at in range(4))
        asked = request((prompt,), max_new_tokens=24, mask_ids=(IDS.mask,))
        # The mask's own embedding stands where the decoder's model call looks it up.
        with torch.no_grad():
            held.get_input_embeddings().weight[IDS.mask] = module.mask_embedding
        decoder, passes = (
            decode_quadratic(session, asked, block_size=size, mask_id=IDS.mask, in_turn=InTurn(module.bigram, copies)),
            [],
        )
        while True:
            try:
                passes.append(next(decoder))
            except StopIteration as ended:
                written = list(ended.value.output_ids[0])
                break
        told = OwnAnswer(prompt="lists/1", temperature=0.0, prompt_ids=list(prompt), answer_ids=written, stopped=False)
        figures = held_out_figures(module, [told], size, IDS, bf16=False, copies=copies)
        assert figures.tokens_per_pass == pytest.approx((len(written) - 1) / (len(passes) - 1))
        agreed += len(figures.accepted[1:]) and sum(figures.accepted[1:])
    assert agreed, "some pass accepts a draft"


def test_the_mask_is_no_answer_in_training_as_in_a_decode(tmp_path: Path) -> None:
    """A model whose head prefers the mask: it is neither written nor counted as what a slot says."""
    told = OwnAnswer(prompt="lists/1", temperature=0.0, prompt_ids=[6, 9, 12], answer_ids=[7, 8, 10, 11], stopped=False)
    found = []
    for size in (0.0, 50.0):  # of the mask's row of the head: the mask is seldom or often the first of all
        held = model(torch.float32)
        weight = held.lm_head.weight.detach().clone()
        weight[IDS.mask] = weight[20] * size
        held.lm_head.weight = torch.nn.Parameter(weight)
        module = TrainedAdapter(held, AdapterSettings(mask_token_id=IDS.mask), IDS.mask)
        with torch.no_grad():
            logits = module.logits(masked_blocks([told], [[3, 4]], 4, IDS, torch.ones(1, 2, 4, dtype=torch.bool)))
        found.append((held_out_figures(module, [told], 4, IDS, bf16=False), logits.argmax(-1)))
    assert found[0][0] == found[1][0] and (found[1][1] == IDS.mask).any()


def test_the_loss_by_hand() -> None:
    """Later slots count less; every second block is told the token before each slot; a cut answer has no target behind it."""
    settings = AdapterSettings(mask_token_id=IDS.mask, slot_decay=0.5, bigram_rank=3)
    module, size = trained(settings), 4
    [held] = module._held
    told, starts = [answer(3, 5), answer(2, 6, stopped=False)], [[4, 6], [3, 5]]
    made = masked_blocks(told, starts, size, IDS, torch.ones(2, 2, size, dtype=torch.bool))
    assert made.in_turn.tolist() == [[True, False]] * 2
    logits, parts = module.logits(made).detach().view(2, 2, size, -1), []
    head, before = held.get_output_embeddings().weight, held.get_input_embeddings().weight
    for row, one in enumerate(told):
        text = [*one.prompt_ids, *one.answer_ids]
        for block, start in enumerate(starts[row]):
            for slot in range(size):
                place = start + slot
                if place >= len(text) and not one.stopped:
                    continue
                said = logits[row, block, slot]
                if block == 0 and slot:
                    said = said + head @ module.bigram_up @ module.bigram_down @ before[[*text, *[IDS.eos] * size][place - 1]]
                wanted = text[place] if place < len(text) else IDS.eos
                parts.append((0.5**slot, -said.log_softmax(dim=0)[wanted]))
    expected = sum(weight * nats for weight, nats in parts) / sum(weight for weight, _ in parts)
    fed = {one.name: getattr(made, one.name) for one in fields(made)}
    assert module(**fed)["loss"].item() == pytest.approx(expected.item(), rel=1e-4), "attention is in float32"


def test_training_goes_on_from_an_adapter(tmp_path: Path) -> None:
    """Bigram term and mask embedding with it; one of another rank is refused."""
    settings = AdapterSettings(mask_token_id=IDS.mask, rank=2, bigram_rank=3)
    first = trained(settings)
    write_adapter(tmp_path, first.adapter(), "tiny")
    made = drawn_blocks([answer(3, 9)], AdapterSettings(slots=12), IDS, random.Random(2))
    second = TrainedAdapter(model(), settings.model_copy(update={"start": str(tmp_path)}), IDS.mask).double()
    assert (second.logits(made) - first.logits(made)).abs().max() < 0.1 * first.logits(made).std(), "saved in bfloat16"
    assert torch.equal(second.bigram_up, first.bigram_up.bfloat16().double())
    with pytest.raises(UnknownModelError, match=r"its rank is 2, of down_proj.*the recipe says rank 4"):
        TrainedAdapter(model(), settings.model_copy(update={"start": str(tmp_path), "rank": 4}), IDS.mask)


def test_weights_are_averaged_over_the_last_steps() -> None:
    """Against the weights that each step has in the average, multiplied out; a tenth of all steps old on average, about."""
    module = trained(AdapterSettings(mask_token_id=IDS.mask, rank=2))
    steps, seen = 40, []
    for step in range(1, steps + 1):
        with torch.no_grad():
            module.mask_embedding.normal_()
        seen.append(module.mask_embedding.detach().clone())
        module.average(step)
    kept = [(1 - 1 / step) ** 10 for step in range(1, steps + 1)]
    shares = [(1 - kept[at]) * math.prod(kept[at + 1 :]) for at in range(steps)]
    assert sum(shares) == pytest.approx(1)
    assert sum(share * (steps - at) for at, share in enumerate(shares, 1)) == pytest.approx(0.1 * steps, rel=0.25)
    with module.averaged():
        assert torch.allclose(module.mask_embedding, sum(share * one for share, one in zip(shares, seen, strict=True)))
    assert torch.equal(module.mask_embedding, seen[-1]), "training goes on with its own"


def test_what_a_doubling_added_by_hand() -> None:
    """Half of 1,600 lies between 400 and 900: at the place of its logarithm."""
    curve = [(0, 1.0), (400, 2.0), (900, 2.3), (1600, 2.5)]
    points = [{"masked_tokens": tokens, "tokens_per_pass": value} for tokens, value in curve]
    assert doubling_gain(points) == pytest.approx(2.5 - (2.0 + 0.3 * math.log(2) / math.log(900 / 400)))
    assert doubling_gain(points[2:]) is None, "900 is more than half of 1,600"


@pytest.mark.parametrize(("stop_gain", "walk_steps", "ended"), [(0.11, 1, 4), (0.11, 5, 5), (None, 1, None), (0.04, 1, None)])
def test_training_ends_where_its_curve_says_so(
    stop_gain: float | None, walk_steps: int, ended: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens double at every step, and each doubling adds half of what the last did: 0.8, 0.4, 0.2, 0.1, 0.05"""
    gains = [0.8 / 2**step for step in range(5)]
    told = iter([1.0 + sum(gains[:step]) for step in range(6)])
    monkeypatch.setattr(
        curve_module,
        "held_out_figures",
        lambda *given: HeldOutFigures(tokens_per_pass=next(told), by_task={}, right=[], accepted=[]),
    )
    work = {"instructions": {"split": "test", "domains": ["lists"]}, "prompts": 2, "max_new_tokens": 8}
    recipe = TrainRecipe.model_validate(
        {
            "version": 1,
            "name": "tiny",
            "model": "tiny",
            "distill": {"workload": work},
            "adapter": {},
            "steps": 6,
            "held_out": {"workload": work, "points_per_doubling": 1, "stop_gain": stop_gain},
            "sequence_tokens": 500,
            "batch_size": 3,
            "learning_rate": 0.01,
            "bf16": False,
        }
    )
    module = trained(AdapterSettings(mask_token_id=IDS.mask))
    made = Curve(recipe, module, [answer(3, 9)], IDS, tmp_path / "curve.jsonl", Progress(), walk_steps)
    args, state = SimpleNamespace(max_steps=99), SimpleNamespace(global_step=0)
    control = SimpleNamespace(should_training_stop=False)
    module.charged += 40_000
    made.on_train_begin(args, state, control)
    for state.global_step in range(1, 6):
        module.charged *= 2
        made.on_step_end(args, state, control)
        if control.should_training_stop:
            break
    assert (state.global_step if control.should_training_stop else None) == ended
    assert made.ended() == control.should_training_stop
    assert [point["step"] for point in finished_lines(made.file)] == list(range(state.global_step + 1))


def test_passes_by_hand() -> None:
    """The first pass has no draft; a pass behind token i writes agreed[i] + 1 tokens, and no more than are left."""
    assert list(passes_of([9, 2, 0, 0, 0, 1, 5], 7)) == [1, 3, 1, 1]
    assert list(passes_of([9, 9], 2)) == [1]


def test_every_answer_comes_once_a_walk_and_batches_hold_like_lengths() -> None:
    """The order depends on the seed and the place alone."""
    answers = [answer(3 + n % 4, 4 + n % 7, name=f"lists/{n}") for n in range(64)]
    stream = [one.prompt for one in (AnswerStream(answers, 4, 32, 5)[i] for i in range(128))]
    assert sorted(stream[:64]) == sorted(stream[64:]) == sorted(one.prompt for one in answers)
    assert stream[:64] != stream[64:]
    later = AnswerStream(answers, 4, 32, 5)
    assert [later[i].prompt for i in range(70, 90)] == stream[70:90]


@pytest.mark.long
def test_a_recipe_distils_trains_and_goes_on(tmp_path: Path) -> None:
    """`sbd train` on a tiny model: answers, curve and adapter are written; a second call goes on and repeats nothing."""
    tokenizer = train_tokenizer(["Write a short list of things to take along", "Answer the question"] * 20, 300)
    shape = SHAPE | {"vocab_size": len(tokenizer), "eos_token_id": 1, "max_position_embeddings": 512}
    config = transformers.LlamaConfig(**shape)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    work = {"instructions": {"split": "train", "domains": ["lists", "code"]}, "prompts": 6, "max_new_tokens": 8}
    recipe = {
        "version": 1,
        "name": "tiny",
        "model": "./model",
        "distill": {"workload": work, "batch_size": 4},
        "sequence_tokens": 500,
        "adapter": {"rank": 2, "slots": 16, "block_sizes": [2, 4]},
        "steps": 4,
        "batch_size": 3,
        "learning_rate": 0.01,
        "warmup_steps": 0,
        "save_steps": 2,
        "bf16": False,
        "held_out": {"workload": work | {"instructions": {"split": "test", "domains": ["lists"]}, "prompts": 2}},
        "schedule": "constant",
    }
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps(recipe))
    out = tmp_path / "out"
    done = sbd_process("train", "--recipe", str(file), "--out", str(out), "--cpu")
    assert done.returncode == 0, done.stderr
    lines = (out / "answers.jsonl").read_text()
    assert len(lines.splitlines()) == 13
    curve = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve] == [0, 4]
    assert curve[-1]["masked_tokens"] > curve[0]["masked_tokens"] == 0
    assert (out / "adapter" / "curve.jsonl").read_bytes() == (out / "curve.jsonl").read_bytes()
    adapter = (out / "adapter" / "adapter_model.safetensors").read_bytes()
    # Cut inside a line, as a kill would; then longer.
    (out / "answers.jsonl").write_text(lines[: len(lines) // 2])
    file.write_text(json.dumps(recipe | {"steps": 6}))
    done = sbd_process("train", "--recipe", str(file), "--out", str(out), "--cpu")
    assert done.returncode == 0, done.stderr
    assert (out / "answers.jsonl").read_text() == lines
    assert (out / "adapter" / "adapter_model.safetensors").read_bytes() != adapter
    assert "4 steps" not in done.stderr
    # Weights and their averages are those of a training that nothing interrupted.
    unbroken = tmp_path / "unbroken"
    assert sbd_process("train", "--recipe", str(file), "--out", str(unbroken), "--cpu").returncode == 0
    for name in ("adapter_model", "mask_embedding"):
        saved = [(one / "adapter" / f"{name}.safetensors").read_bytes() for one in (out, unbroken)]
        assert saved[0] == saved[1]
    # What its curve has ended is not trained further.
    ends = {"steps": 8, "held_out": recipe["held_out"] | {"stop_gain": 99.0}}
    file.write_text(json.dumps(recipe | ends))
    adapter = (out / "adapter" / "adapter_model.safetensors").read_bytes()
    done = sbd_process("train", "--recipe", str(file), "--out", str(out), "--cpu")
    assert done.returncode == 0, done.stderr
    assert (out / "adapter" / "adapter_model.safetensors").read_bytes() == adapter
    assert [json.loads(line)["step"] for line in (out / "curve.jsonl").read_text().splitlines()][-1] == 6
    # Another way to answer is another file.
    file.write_text(json.dumps(recipe | {"distill": {"workload": work, "temperatures": [0.5]}}))
    done = sbd_process("train", "--recipe", str(file), "--out", str(out), "--cpu")
    assert done.returncode == 2
    assert "answers.jsonl: was made with another distill" in done.stderr


def test_an_answer_that_is_learnt_from_has_no_mask() -> None:
    """However likely the head says it is."""
    held = model(torch.float32)
    weight = held.lm_head.weight.detach().clone()
    weight[IDS.mask] = weight[20] * 50
    held.lm_head.weight = torch.nn.Parameter(weight)
    work = {"instructions": {"split": "train", "domains": ["lists"]}, "prompts": 2, "max_new_tokens": 30}
    items = [PromptItem(prompt_id=str(first), ids=(first, 9, 12)) for first in (6, 20)]
    written = []
    for mask in (IDS.mask, 0):
        distill = Distillation.model_validate({"workload": work})
        found = _answered(StaticSession(held), distill, Batch(0, "lists", items, 0.0), StopRule(), mask, torch.device("cpu"))
        written.append({token for one in found for token in one.answer_ids})
    assert IDS.mask not in written[0] and IDS.mask in written[1]
