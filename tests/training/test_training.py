"""The doubled sequence, its mask and its loss, against an element-by-element reading of the paper."""

from __future__ import annotations

import math

import pytest
import torch
import transformers

from harness.decoding.session import Segment
from harness.engine.attention_masks import attention_input
from harness.engine.plain_session import TransformersSession
from harness.training import trainer
from harness.training.noising import IGNORE, MAX_BLOCK, MIN_BLOCK, clean_batch, doubled_batch, doubled_sequence
from harness.training.reference import STORIES, VARIABLES, TaskExamples, train_tokenizer
from harness.training.trainer import TrainingConfig, objective_loss, train
from harness.workloads.tasks import TASKS, problems
from tests.helpers.tiny_model import tiny_config, tiny_model
from tests.helpers.training_examples import EXAMPLES, IDS


@pytest.fixture(autouse=True)
def gradients():
    """Loading a model to decode with switches them off for good; whichever test did so ran before."""
    with torch.set_grad_enabled(True):
        yield


def batch(seed: int):
    """One doubled batch."""
    return doubled_batch(EXAMPLES, IDS, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(6))
def test_the_mask_is_the_papers(seed):
    """x→x causal; x̂→x̂ in the block; x̂→x strictly before the block; x→x̂ never: rebuilt pair by pair from positions."""
    made = batch(seed)
    clean = made["labels"].shape[1]
    noisy = made["noisy_labels"].shape[1]
    size = block_size_of(seed)
    for row, example in enumerate(EXAMPLES):
        length, start = len(example["input_ids"]), example["prompt_tokens"]
        blocks = math.ceil((length - start) / size)
        for q in range(length):
            for key in range(clean + noisy):
                assert made["visible"][row, q, key] == (key < clean and key <= q), "queries of x"
        for q in range(blocks * size):
            for key in range(clean + noisy):
                first = start + q // size * size
                expected = key < min(first, length) if key < clean else (key - clean) // size == q // size
                assert made["visible"][row, clean + q, key] == expected, "queries of x̂"


def block_size_of(seed: int) -> int:
    """The first draw of the batch's generator."""
    return int(torch.randint(MIN_BLOCK, MAX_BLOCK + 1, (1,), generator=torch.Generator().manual_seed(seed)))


def test_labels_stand_where_the_mask_stands():
    """The published listing labels the unmasked positions; ours the masked, with their own token, end-of-sequence behind."""
    masked_seen = 0
    for seed in range(20):
        made = batch(seed)
        clean = made["labels"].shape[1]
        for row, example in enumerate(EXAMPLES):
            start, length = example["prompt_tokens"], len(example["input_ids"])
            for slot in range(made["noisy_labels"].shape[1]):
                token, label = int(made["input_ids"][row, clean + slot]), int(made["noisy_labels"][row, slot])
                truth = example["input_ids"][start + slot] if start + slot < length else IDS.eos
                assert int(made["position_ids"][row, clean + slot]) == start + slot
                if token == IDS.mask:
                    masked_seen += 1
                    assert label == truth
                else:
                    assert label == IGNORE
                    assert token == truth
    assert masked_seen > 50


def test_next_token_labels_charge_the_answer_only():
    """Hand-worked: three prompt tokens, so the logits at position 2 answer for the fourth token."""
    labels = clean_batch(EXAMPLES, IDS)["labels"]
    assert labels[0].tolist() == [IGNORE, IGNORE, 4, 5, 6, 7, 91, IGNORE]
    assert labels[1].tolist() == [IGNORE, 9, 91, IGNORE, IGNORE, IGNORE, IGNORE, IGNORE]


def test_block_sizes_and_masking_rates_are_uniform():
    """Block sizes cover 2..16 and no other; the mean share of masked tokens is one half."""
    sizes = {block_size_of(seed) for seed in range(400)}
    assert sizes == set(range(2, 17))
    long = [{"input_ids": list(range(64)), "prompt_tokens": 0}] * 8
    shares = [
        (doubled_batch(long, IDS, torch.Generator().manual_seed(s))["noisy_labels"] != IGNORE).float().mean().item()
        for s in range(60)
    ]
    assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.06)


def test_the_loss_is_equation_14():
    """Both sums over negative log-likelihoods in plain floats, per next-token target."""
    logits = torch.tensor([[[0.0, 1.0], [2.0, 0.0], [0.5, 0.5], [3.0, 0.0]]])
    labels, noisy = torch.tensor([[1, IGNORE]]), torch.tensor([[0, 1]])
    next_token, masked = objective_loss(logits, labels, noisy)
    assert next_token.item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert masked.item() == pytest.approx(math.log(2) + math.log(1 + math.exp(3)))


def test_eager_attention_gets_an_additive_mask():
    """transformers adds a boolean mask to the scores under eager attention, which is silently wrong."""
    visible = torch.tensor([[[True, False], [True, True]]])
    assert attention_input(visible, "sdpa", torch.float32).dtype == torch.bool
    additive = attention_input(visible, "eager", torch.float32)
    assert additive[0, 0, 0].tolist() == [0.0, torch.finfo(torch.float32).min]


def test_the_masked_half_sees_what_decoding_shows_it():
    """A fully masked block in training gives the logits that the first pass of decoding gives: same context, same block."""
    model, prompt, size, mask_id = tiny_model("llama"), [1, 5, 9, 3, 22], 4, 36
    sequence = torch.tensor([[*prompt, 7, 8, 9, 10]])
    visible = doubled_sequence(
        torch.ones(1, 9, dtype=torch.bool), torch.zeros(1, size, dtype=torch.long), torch.tensor([5]), size
    )
    with torch.no_grad():
        trained = model(
            input_ids=torch.cat([sequence, torch.full((1, size), mask_id)], dim=1),
            position_ids=torch.cat([torch.arange(9), torch.arange(5, 9)])[None],
            attention_mask=attention_input(visible, "sdpa", torch.float64),
        ).logits[:, 9:]
    session = TransformersSession(model, "sdpa")
    session.reset(1, 16)
    session.forward([Segment(tokens=sequence[:, :5], positions=torch.arange(5)[None], visibility="causal", logits=1)])
    session.keep([5])
    block = torch.full((1, size), mask_id)
    decoded = session.forward(
        [Segment(tokens=block, positions=torch.arange(5, 9)[None], visibility="bidirectional", logits=size)]
    )
    assert (trained - decoded).abs().max() < 1e-9


def test_training_learns_and_resumes(tmp_path):
    """A few steps on the real Trainer lower the loss, write a checkpoint, and a resumed run goes on from it."""
    torch.manual_seed(0)
    config = tiny_config(vocab_size=93, max_position_embeddings=64)
    data = EXAMPLES * 200

    def steps(count):
        model = transformers.LlamaForCausalLM(config)
        settings = TrainingConfig(
            output_dir=tmp_path,
            steps=count,
            batch_size=4,
            learning_rate=1e-2,
            warmup_steps=1,
            cpu=True,
            schedule="constant",
            save_steps=10,
            log_steps=5,
        )
        train(settings, model, data, IDS)
        return [entry for entry in __import__("json").loads(state.read_text())["log_history"] if "loss" in entry]

    state = tmp_path / "checkpoint-20" / "trainer_state.json"
    first = steps(20)
    assert first[-1]["loss"] < first[0]["loss"]
    state = tmp_path / "checkpoint-30" / "trainer_state.json"
    resumed = steps(30)
    assert resumed[: len(first)] == first
    assert resumed[-1]["step"] == 30


def test_noise_is_new_in_every_batch_and_the_same_in_a_resumed_run(tmp_path, monkeypatch):
    """One example leads every batch; five batches an epoch, two a step, so the third step of an epoch reads one alone."""
    made = []

    def seen(examples, ids, generator, **options):
        made.append(generator.initial_seed())
        return doubled_batch(examples, ids, generator, **options)

    monkeypatch.setattr(trainer, "doubled_batch", seen)
    config = tiny_config(vocab_size=93, max_position_embeddings=64)

    def noise(directory, steps):
        """What the noise of each batch is drawn from that this process reads."""
        made.clear()
        settings = trainer.TrainingConfig(
            output_dir=tmp_path / directory, steps=steps, batch_size=1, accumulate=2, warmup_steps=0, cpu=True, save_steps=2
        )
        trainer.train(settings, transformers.LlamaForCausalLM(config), [EXAMPLES[0]] * 5, IDS)
        return list(made)

    whole = noise("whole", 6)
    assert len(set(whole)) == len(whole) >= 10
    first, rest = noise("broken", 4), noise("broken", 6)
    assert first[:7] == whole[:7] and rest[:3] == whole[7:10]


@pytest.fixture(scope="module")
def reference_tokenizer():
    """The reference model's tokenizer, from few texts: its rules are the same."""
    return train_tokenizer((p.prompt + p.solution for t in TASKS.values() for p in problems(t, "train", 200, 1)), 600)


def test_a_number_of_two_digits_is_one_token():
    """Every step of arithmetic then has one shape; longer numbers are split in twos, from the left."""
    pieces = train_tokenizer([f"{n} and {n}." for n in range(100)] * 5, 600).tokenize("7+12=19. 1234567")
    assert [p for p in pieces if p.isdigit()] == ["7", "12", "19", "12", "34", "56", "7"]


def test_reference_examples_are_one_stream_whatever_the_order_of_reading(reference_tokenizer):
    """A resumed run reads on where it stopped: item i is the same read first or last; other seeds give other items."""
    stream = TaskExamples(reference_tokenizer, seed=3, batch_size=8, batches=48)
    forwards = [stream[i] for i in range(len(stream))]
    assert len(forwards) == 384
    again = TaskExamples(reference_tokenizer, seed=3, batch_size=8, batches=48)
    assert again[383] == forwards[383] and again[0] == forwards[0] and again[200] == forwards[200]
    assert TaskExamples(reference_tokenizer, seed=4, batch_size=8, batches=48)[0] != forwards[0]
    assert len({tuple(e["input_ids"]) for e in forwards}) > 380, "no example is served twice"


def test_a_later_mixture_goes_on_counting_where_the_one_before_stopped(reference_tokenizer):
    """Every problem of a task is served once and in order, whatever the mixture; the second phase has its own shares."""
    phases = ((0, STORIES), (5, VARIABLES), (40, STORIES))
    stream = TaskExamples(reference_tokenizer, 3, batch_size=8, batches=64, phases=phases)
    served = [stream._problem(number) for number in range(512)]
    for name in set(STORIES):
        assert [index for task, index in served if task == name] == list(range(sum(task == name for task, _ in served)))
    assert [task for task, _ in served[:4]] == list(STORIES) and [task for task, _ in served[40:48]] == list(VARIABLES)
    assert [task for task, _ in served[320:324]] == list(STORIES)


def test_reference_batches_hold_sequences_of_like_length(reference_tokenizer):
    """Padding is under 5 % where unsorted batches pad over 15 %; half of the problems are word problems."""
    stream = TaskExamples(reference_tokenizer, seed=3, batch_size=32, batches=32)
    lengths = [len(stream[i]["input_ids"]) for i in range(len(stream))]

    def padded(order):
        return 1 - sum(order) / sum(32 * max(order[i : i + 32]) for i in range(0, len(order), 32))

    assert padded(lengths) < 0.05 < 0.15 < padded([lengths[i * 389 % len(lengths)] for i in range(len(lengths))])
    assert STORIES.count("word_problems") * 2 == len(STORIES)
    stories = sum("How many" in reference_tokenizer.decode(stream[i]["input_ids"]) for i in range(len(stream)))
    assert stories == len(stream) / 2
