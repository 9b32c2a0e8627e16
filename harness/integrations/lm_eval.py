"""The lm_eval model ``sbd``: any arm of ours on every task of the LM Evaluation Harness.

    sbd eval --model_args pretrained=reference-sbd,arm=sbd_verified,gamma=0.35 --tasks gsm8k

That is ``lm_eval run --model sbd`` with this module imported; a version of lm_eval that reads the entry points
``lm_eval.models`` (later than 0.4.13) finds it by itself. Only this module and harness.cli import lm_eval.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from harness.engine.engine import open_engine
from harness.engine.loading import device_here
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import ScenarioError
from harness.integrations.decode_log import Asked, DecodeLog, answers
from harness.integrations.single_arm import case_of_scenario, read_arm, single_case, with_lengths
from harness.models.choice import REFERENCE_MODELS
from harness.scenario.plan import Case

MAX_NEW_TOKENS = 256
"""lm_eval's own default where a task names no length."""
REMOTE_CODE_GRANTED = ContextVar("remote_code_granted", default=False)
"""Whether `sbd eval` was told to trust the code of models: lm_eval, which makes the model, has no word for it."""
_log = logging.getLogger(__name__)


@register_model("sbd")
class SbdModel(TemplateLM):  # type: ignore[misc]  # lm_eval carries no types
    """An arm on a model. ``pretrained``: a folder, a hub id, or ``reference-sbd``; with ``arm`` (a method's name or a mapping)
    and its keys. Or ``scenario``: a file or a shipped name, with ``part`` and ``arm`` as `sbd plan` numbers or calls it.

    ``log``: a file for one line per answer. Likelihoods come from the next-token head, which is the same for every arm.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        scenario: str | None = None,
        part: str | None = None,
        arm: str | int | Mapping[str, object] | None = None,
        batch_size: int | str | None = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        max_gen_toks: int = MAX_NEW_TOKENS,
        log: str | None = None,
        **keys: Any,
    ) -> None:
        super().__init__()
        self.batch_size = _rows(batch_size)
        if (pretrained is None) == (scenario is None):
            raise ScenarioError("give either pretrained=MODEL with arm=..., or scenario=FILE with part= and arm=")
        if scenario is not None:
            if keys:
                raise ScenarioError(f"{', '.join(keys)}: not beside scenario, which says everything; leave it out")
            case = case_of_scenario(scenario, part, 0 if arm is None else str(arm), REMOTE_CODE_GRANTED.get())
        else:
            case = _case(str(pretrained), arm, device, keys)
        self._case = case
        self._engine = open_engine(case.part.model_copy(update={"timed": False}))
        if self._engine.tokenizer is None:
            raise ScenarioError(f"{case.part.name}: random weights have no tokenizer; name a trained model")
        self._text: TextTokenizer = self._engine.tokenizer
        self._max_new_tokens = max_gen_toks
        self._decodes = self._cut = 0
        self._info = {"case": case.case_id, "arm": case.arm.values, "label": case.label, "batch_size": self.batch_size}
        self._decode_log = DecodeLog(Path(log) if log else None, self._info)

    @property
    def eot_token_id(self) -> int:
        """What lm_eval puts before a text without a context."""
        return self.prefix_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token that begins a sequence, else the one that ends it."""
        token = self._text.prefix_id
        if token is None:
            raise ScenarioError("the tokenizer has no token that begins or ends a sequence, so a text needs a context")
        return token

    @property
    def max_length(self) -> int:
        """Positions of the model."""
        return self._engine.shape.max_positions or 131_072

    @property
    def tokenizer_name(self) -> str:
        """For lm_eval's own cache of requests."""
        return self._engine.shape.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids as a prompt of ours has them; without the first token where lm_eval says so or the text has it."""
        ids = self._text.encode(string)
        front = self._text.encode("")[:1]
        if front and ids[:1] == front and (add_special_tokens is False or ids[1:2] == front):
            return ids[1:]
        return ids

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Named for the record of lm_eval only: the tokenizer's own is used."""
        return "" if chat_template is False else "the tokenizer's own"

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages as text."""
        return self._text.chat_text(chat_history, answer=add_generation_prompt)

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answer every request with the arm, in batches of requests that ask for the same and are of like length."""
        asked: dict[Asked, list[int]] = {}
        for index, request in enumerate(requests):
            asked.setdefault(Asked.of(request.args[1], self._max_new_tokens, self._case.arm.temperature), []).append(index)
        texts: dict[int, str] = {}
        for what, indices in asked.items():
            prompts = {index: self._prompt(requests[index].args[0], what) for index in indices}
            for batch in self._batches({index: len(prompt) for index, prompt in prompts.items()}):
                texts |= self._answer({index: prompts[index] for index in batch}, what, requests)
        self._info["sbd"] = sums = self._decode_log.summarise() | {"cut_prompts": self._cut}
        _log.info("sbd: %s: %s", self._case.label, sums)
        return [texts[index] for index in range(len(requests))]

    def _batches(self, lengths: Mapping[int, int]) -> Iterator[list[int]]:
        """The keys in batches, those of the longest first; equal ones as given."""
        order = sorted(lengths, key=lambda index: -lengths[index])
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def _prompt(self, text: str, what: Asked) -> tuple[int, ...]:
        """Ids; where the model has too few positions the first ones are left out and counted, as in lm_eval's own models."""
        ids, room = self.tok_encode(text), self.max_length - what.max_new_tokens
        if room < 1:
            raise ScenarioError(f"max_gen_toks {what.max_new_tokens} leaves no room for a prompt; {self.max_length} positions")
        if not ids:
            raise ScenarioError("a request has an empty context, and the tokenizer puts nothing in front; give it a prompt")
        self._cut += len(ids) > room
        return tuple(ids[-room:])

    def _answer(self, batch: Mapping[int, tuple[int, ...]], what: Asked, requests: Sequence[Any]) -> dict[int, str]:
        """Decode one batch and write down what it cost."""
        case = with_lengths(self._case, what.max_new_tokens, what.until)
        decoded = self._engine.decode(case, list(batch.values()), case.sample_seed(min(batch), 0))
        lines = answers(decoded.generation, self._decodes, decoded.prefill_s, decoded.decode_s)
        self._decodes += 1
        texts = {}
        for line, index, ids in zip(lines, batch, decoded.generation.output_ids, strict=True):
            texts[index] = what.before_stop(self._text.decode(ids))
            request = requests[index]
            self._decode_log.add(line, {"task": request.task_name, "doc_id": request.doc_id, "request": request.idx})
        return texts

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        """((texts), ids of the context, ids of the continuation) each; what is too long loses its beginning."""
        pairs = [_fitting(context, answer, self.max_length) for _, context, answer in requests]
        self._cut += sum(len(pair[0]) < len(request[1]) for pair, request in zip(pairs, requests, strict=True))
        values: dict[int, tuple[float, bool]] = {}
        for batch in self._batches({index: len(context) + len(answer) for index, (context, answer) in enumerate(pairs)}):
            scores = self._engine.answer_logprobs([pairs[index] for index in batch])
            values |= {index: (score.log_p, score.greedy) for index, score in zip(batch, scores, strict=True)}
        return [values[index] for index in range(len(pairs))]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, in windows of all the positions there are."""
        sums = []
        for request in requests:
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            windows = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1)
            pairs = [(("", ""), *make_disjoint_window(window)) for window in windows]
            sums.append(sum(value for value, _ in self._loglikelihood_tokens(pairs)))
        return sums

    def get_model_info(self) -> dict[str, object]:
        """For the results file of lm_eval: the arm, and what its answers have cost."""
        return self._info


def _case(
    pretrained: str, arm: str | int | Mapping[str, object] | None, device: str | None, keys: Mapping[str, object]
) -> Case:
    if arm is None or isinstance(arm, int):
        raise ScenarioError("arm is missing: give arm=ntp, or arm=sbd_verified,gamma=0.35 (the keys that a scenario's arm has)")
    of_model = {key: keys[key] for key in ("revision", "mask_token_id", "trust_remote_code") if key in keys}
    of_part = {key: keys[key] for key in ("dtype", "session", "execution", "attention", "threads", "seed") if key in keys}
    ours = {f"reference-{name}": name for name in REFERENCE_MODELS}
    model = {"reference": ours[pretrained]} if pretrained in ours else {"huggingface": pretrained}
    knobs = {key: value for key, value in keys.items() if key not in of_model and key not in of_part}
    part = {"dtype": "bfloat16", **of_part, "model": model | of_model, "device": device or device_here()}
    return single_case(read_arm(arm, knobs), part, REMOTE_CODE_GRANTED.get())


def _fitting(context: Sequence[int], answer: Sequence[int], positions: int) -> tuple[Sequence[int], Sequence[int]]:
    """The pair without the beginning of its context, so that all but the last token of both have a position."""
    room = positions + 1 - len(answer)
    if room < 1:
        raise ScenarioError(f"a continuation of {len(answer)} tokens does not fit into {positions} positions")
    return context[-room:], answer


def _rows(batch_size: int | str | None) -> int:
    if str(batch_size or 1).isdecimal() and int(batch_size or 1) > 0:
        return int(batch_size or 1)
    raise ScenarioError(f"batch_size {batch_size!r}: give a whole number; an automatic size would change what is timed")
