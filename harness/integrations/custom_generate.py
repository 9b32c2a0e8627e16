"""SBD decoding inside any transformers code: a decoding loop for ``generate(custom_generate=...)``.

    from harness.integrations.custom_generate import sbd
    model.generate(**inputs, custom_generate=sbd, arm={"method": "sbd_verified", "gamma": 0.35}, max_new_tokens=200)

generate() reads its settings, checks the inputs and then calls ``sbd``, which decodes with the model's weights and our own KV.
``DIRECTORY`` is the same as a repository with ``custom_generate/generate.py``, for code that names one:
``generate(**inputs, custom_generate=DIRECTORY, trust_remote_code=True)``. The loop refuses settings
that it cannot honour (beams, logits processors, further stopping criteria, a given cache) and ignores none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.logits_process import TemperatureLogitsWarper
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria
from transformers.utils.generic import ModelOutput

from harness.decoding.drafters import Drafter
from harness.decoding.request import DecodeRequest, StopRule
from harness.engine.decoders import Decoding, decoder_of
from harness.engine.engine import drain
from harness.engine.loading import LoadedModel, ids_of, stop_ids_of
from harness.engine.static_session import StaticSession
from harness.errors import UserError
from harness.integrations.single_arm import read_arm, single_case
from harness.models import shape_from_config
from harness.models.decodable import refuse_ids, why_undecodable
from harness.record.trace import Generation
from harness.scenario.plan import Case

DIRECTORY = str(Path(__file__).parent / "hub_repository")
"""A folder that generate() takes as a repository of a custom decoding method."""
DEFAULT_ARM = {"method": "sbd_verified", "gamma": 0.35}
"""Writes what greedy next-token prediction writes, so that naming the decoding loop changes the speed and nothing else."""
# What generate() hands on besides what has a name below: read or rebuilt here, or of no effect on the tokens.
_KNOWN = {"attention_mask", "position_ids", "past_key_values", "logits_to_keep", "use_cache", "cache_position", "synced_gpus"}


@dataclass
class SbdOutput(ModelOutput):
    """``sequences`` (B, W + n) ids with their prompts; ``generation``: every forward pass, in counts."""

    sequences: Tensor | None = None
    generation: Generation | None = None


def sbd(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: Sequence[Any] | None = None,
    stopping_criteria: Sequence[Any] | None = None,
    generation_config: Any = None,
    *,
    arm: str | Mapping[str, object] | None = None,
    mask_token_id: int | None = None,
    **model_kwargs: Any,
) -> Tensor | SbdOutput:
    """The decoding loop, as generate() calls it; not to be called by hand.

    ``arm``: a method's name, a mapping, or YAML text of one, as in a scenario, without temperature: that is generate()'s
    (0 where it does not sample). ``mask_token_id``: of the tokenizer the model was trained with, where its config has none.

    Returns:
        (B, W + n) ids: the (B, W) prompts and what was written, filled up with the pad token; with return_dict_in_generate
        an SbdOutput.

    Raises:
        UserError and its kind: something is asked for that this loop does not do; the message says what is allowed.
    """
    # attention_mask must not be a parameter: generate() would take it for one of ours and not prepare its own.
    _refuse_inputs(input_ids, model_kwargs)
    _refuse_settings(generation_config, logits_processor or (), stopping_criteria or ())
    prompts = _prompts(input_ids, model_kwargs)
    case = _case(arm, float(generation_config.temperature) if generation_config.do_sample else 0.0, model)
    loaded = _loaded(model, case, mask_token_id, generation_config)
    generation = _decoded(case, loaded, prompts, generation_config.max_length - input_ids.shape[1])
    rows = [torch.tensor(row, dtype=torch.long) for row in generation.output_ids]
    # As generate() fills up: with the pad token, else the first that ends a sequence.
    pad = (ids_of(generation_config.pad_token_id) or ids_of(generation_config.eos_token_id) or [0])[0]
    written = pad_sequence(rows, batch_first=True, padding_value=pad).to(input_ids.device)
    sequences = torch.cat([input_ids, written], dim=1)
    return SbdOutput(sequences=sequences, generation=generation) if generation_config.return_dict_in_generate else sequences


def _decoded(case: Case, loaded: LoadedModel, prompts: tuple[tuple[int, ...], ...], max_new_tokens: int) -> Generation:
    """Decode one batch; the model has its own attention again afterwards, because our session brings another."""
    model, temperature = loaded.module, case.arm.temperature
    # Seeded by torch's own stream, so that torch.manual_seed repeats a sampled answer as it does in generate().
    seed = int(torch.randint(2**62, (1,))) if temperature else 0
    request = DecodeRequest(
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        stop=StopRule(token_ids=loaded.stop_ids),
        suppressed_ids=() if loaded.mask_id is None else (loaded.mask_id,),
        temperature=temperature,
        generator=torch.Generator(model.device).manual_seed(seed),
        device=model.device,
    )
    attention = model.config._attn_implementation
    try:
        return drain(decoder_of(Decoding(case, loaded, StaticSession(model), request, seed, _no_drafter)))
    finally:
        model.set_attn_implementation(attention)


def _no_drafter() -> Drafter:
    raise UserError(
        "an arm that drafts with another model or by looking up the prompt is what generate() has itself: use its "
        "prompt_lookup_num_tokens or assistant_model; here every other arm of a scenario is allowed"
    )


def refuse_unseen(options: Mapping[str, object]) -> None:
    """Refuse what generate() swallows before it calls a decoding loop; the repository form sees it, the callable cannot.

    Raises:
        UserError: a streamer, an assistant or stop strings are given.
    """
    for name in ("streamer", "assistant_model", "assistant_tokenizer", "prefix_allowed_tokens_fn", "stop_strings"):
        if options.get(name) is not None:
            raise UserError(f"custom_generate: {name} is not supported; blocks become final all at once. Leave it out")


def _refuse_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> None:
    refuse_unseen(model_kwargs)
    if input_ids.shape[1] == 0:
        raise UserError("custom_generate: got no input_ids; inputs_embeds are not supported, give token ids")
    unknown = sorted(name for name, value in model_kwargs.items() if value is not None and name not in _KNOWN)
    if unknown:
        names = ", ".join(unknown)
        raise UserError(f"custom_generate: {names} would be ignored; allowed model inputs: input_ids, attention_mask")
    past = model_kwargs.get("past_key_values")
    if past is not None and past.get_seq_length() > 0:
        raise UserError("custom_generate: past_key_values holds tokens already; give the whole prompt and no cache")


def _refuse_settings(config: Any, processors: Sequence[Any], criteria: Sequence[Any]) -> None:
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise UserError(f"custom_generate: {mode.value} is not supported; allowed: greedy decoding and sampling, num_beams=1")
    refused = [type(processor).__name__ for processor in processors if not isinstance(processor, TemperatureLogitsWarper)]
    if refused:
        raise UserError(
            f"custom_generate: {', '.join(refused)} would change the tokens and is not supported; allowed is temperature: "
            "with do_sample=True give top_k=0, top_p=1.0, else do_sample=False, and no penalties"
        )
    refused = [type(rule).__name__ for rule in criteria if not isinstance(rule, MaxLengthCriteria | EosTokenCriteria)]
    if refused:
        raise UserError(f"custom_generate: {', '.join(refused)} is not supported; allowed are max_new_tokens and eos_token_id")
    for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
        if getattr(config, name, None):
            raise UserError(f"custom_generate: {name} is not supported; return_dict_in_generate gives the passes")


def _prompts(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Each row's own tokens, padding on the left left out."""
    mask = model_kwargs.get("attention_mask")
    real = torch.ones_like(input_ids, dtype=torch.bool) if mask is None else mask.bool()
    if bool((real[:, 1:] < real[:, :-1]).any()) or not bool(real[:, -1].all()):
        raise UserError("custom_generate: attention_mask has padding after or inside a prompt; pad on the left")
    positions = model_kwargs.get("position_ids")
    if positions is not None and bool(((positions != real.cumsum(dim=1) - 1) & real).any()):
        raise UserError("custom_generate: position_ids other than 0, 1, 2, ... are not supported; leave them out")
    return tuple(tuple(ids[own].tolist()) for ids, own in zip(input_ids, real, strict=True))


def _case(arm: str | Mapping[str, object] | None, temperature: float, model: PreTrainedModel) -> Case:
    keys = read_arm(DEFAULT_ARM if arm is None else arm)
    if "temperature" in keys:
        raise UserError("custom_generate: arm: temperature is generate()'s here; give do_sample=True, temperature=..., top_k=0")
    dtype = str(model.dtype).removeprefix("torch.")
    return single_case({**keys, "temperature": temperature}, {"model": {"huggingface": "model/given"}, "dtype": dtype})


def _loaded(model: PreTrainedModel, case: Case, mask_token_id: int | None, config: Any) -> LoadedModel:
    """The caller's model as our decoders want it."""
    devices = set((getattr(model, "hf_device_map", None) or {}).values())
    if len(devices) > 1:
        raise UserError("custom_generate: the model is spread over several devices; only one device is supported so far")
    written = model.config.to_dict()
    shape = shape_from_config("the given model", written)
    reason = why_undecodable(written, shape, str(model.dtype).removeprefix("torch."))
    if reason is not None:
        raise UserError(f"custom_generate: the model {reason}")
    mask_id = next(iter(ids_of(mask_token_id) or ids_of(getattr(model.config, "mask_token_id", None))), None)
    stop_ids = stop_ids_of(config)
    refuse_ids("custom_generate", mask_id, stop_ids, shape.vocab, case.part.needs_mask)
    return LoadedModel(module=model, shape=shape, tokenizer=None, mask_id=mask_id, stop_ids=stop_ids)
