"""The engine: one loaded model that decodes any arm, timed, with its session, clock and meters.

All arms go through the same function, session object and synchronisation policy. ``measure_passes`` makes short decodes of one
row at one context, NTP and SBD; the predictions of all other cells start from them. They use random prompts, the decoders of
the samples, and a replayed acceptance that makes every kind of pass.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from harness.decoding.next_token import AnswerLogprob, Pair, answer_logprobs
from harness.decoding.request import NEVER, Decoder, DecodeRequest, StopRule
from harness.decoding.sampling import FiguresOf, NativeFigures
from harness.decoding.session import ModelSession
from harness.engine.compiling import can_compile, compiled_steps, execution_of
from harness.engine.cuda_graphs import GraphedSession
from harness.engine.decoders import Decoding, decoder_of, measured_decoder
from harness.engine.drafters import DraftModels, drafter_of
from harness.engine.fingerprint import fingerprint
from harness.engine.hf_generate import generate
from harness.engine.loading import LoadedModel, keep_what_is_freed, load_model, map_what_comes
from harness.engine.rank_group import RankGroup, keep_in_step
from harness.engine.sessions import open_session
from harness.errors import DoesNotFitError, InvariantError, NotPossibleError, ScenarioError
from harness.meters.available import Available, find_meters
from harness.meters.clock import Clock, MeteredSession, clock_of, cuda_index
from harness.record.decode import Decoded, Readings
from harness.record.schema import SUPPRESSED_FIRST
from harness.record.trace import Generation
from harness.roofline.shape_calibration import MEASURED_BLOCKS, MEASURED_CONTEXT
from harness.roofline.storage import shard
from harness.scenario.part import Beside, Part
from harness.scenario.plan import Case

NTP_TOKENS = 17
WARM_ROUNDS, ROUNDS = 1, 2


@dataclass
class LocalEngine:
    """A part's model on its device, with the meters that watch it (None: the part is not timed) and its draft models.
    ``measuring``: the session that passes are measured with, where the samples' session would have to make its graphs anew.
    ``tokenizer`` is None for random models.
    """

    _model: LoadedModel
    _session: ModelSession
    _device: torch.device
    _clock: Clock
    _meters: Available | None
    _drafts: DraftModels
    _measuring: ModelSession
    _figures: FiguresOf | None

    def __post_init__(self) -> None:
        self.shape, self.tokenizer = self._model.shape, self._model.tokenizer
        self._suppressed = () if self._model.mask_id is None else (self._model.mask_id,)
        self._watched: set[str] = set()

    @property
    def meters(self) -> dict[str, object] | None:
        """Units and sources of the figures that every timed sample carries, and what this machine cannot tell."""
        if self._meters is None:
            return None
        scale = self._meters.scale
        return {
            "figures": {name: asdict(figure) for name, figure in self._meters.windows.figures.items()}
            | {SUPPRESSED_FIRST: {"unit": "%", "source": "positions of a case's first decode, by their logits"}},
            "absent": [asdict(absence) for absence in self._meters.absent],
            "bandwidth_scale": None if isinstance(scale, str) else scale.model_dump(mode="json"),
            "bandwidth_scale_reason": scale if isinstance(scale, str) else None,
        }

    def fingerprint(self, part: Part) -> dict[str, object]:
        """What the model, or this rank's share of it, runs on here, for the shapes of ``part``."""
        return fingerprint(part, replace(self._model, shape=shard(self.shape, part.tensor_parallel)))

    def decode(self, case: Case, prompts: Sequence[tuple[int, ...]], seed: int) -> Decoded:
        """Decode one batch with the case's arm.

        Raises:
            DoesNotFitError: the device ran out of memory.
        """
        with self._as_it_fits():
            stop, strings, tokenizer = StopRule(token_ids=self._model.stop_ids), case.workload.stop_strings, self.tokenizer
            if case.part.replayed:
                stop = NEVER
            elif strings and tokenizer is not None:
                stop = replace(stop, ends_text=lambda ids: any(s in tokenizer.decode(ids) for s in strings))
            request = self._request(prompts, case.workload.max_new_tokens, stop, case.arm.temperature, seed)
            if case.is_check:
                return self._generated(case, request)
            chosen: list[Tensor] = []
            free = (case.part.warmups > 0 and case.warms == case.case_id) or not case.part.timed  # of a clock
            is_first = free and not case.part.replayed and case.case_id not in self._watched
            self._watched.add(case.case_id)
            session = MeteredSession(self._session, self._clock, partial(self._note, chosen) if is_first else None)
            drafter = partial(drafter_of, case, self._model, self._drafts, request, session.beside)
            decoder = decoder_of(Decoding(case, self._model, session, request, seed, drafter))
            decoded = self._drained(decoder, session)
            if not chosen:
                return decoded
            readings = decoded.readings or Readings(values={}, reasons={})
            share = 100 * torch.cat(chosen).double().mean().item()
            return replace(decoded, readings=replace(readings, values=readings.values | {SUPPRESSED_FIRST: share}))

    def _note(self, chosen: list[Tensor], logits: Tensor) -> None:
        """Whether a suppressed id is the first choice of each position; asked in a case's first decode, never timed."""
        chosen += [(logits.argmax(dim=-1) == token).flatten() for token in self._suppressed]

    def answer_logprobs(self, pairs: Sequence[Pair]) -> list[AnswerLogprob]:
        """What the next-token head says of given answers, see harness.decoding.next_token.

        Raises:
            DoesNotFitError: the device ran out of memory.
        """
        with self._as_it_fits():
            return answer_logprobs(self._session, pairs, self._suppressed, self._device)

    @contextmanager
    def _as_it_fits(self) -> Iterator[None]:
        """Where memory runs out, give back the KV and raise DoesNotFitError."""
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError) as error:
            for session in (self._session, self._measuring):
                session.reset(0, 0)
            raise DoesNotFitError(f"out of memory on {self._device}: {str(error).splitlines()[0]}") from error

    def measure_passes(self, block_sizes: Sequence[int], beside: Sequence[tuple[Beside, int]] = ()) -> list[Decoded]:
        """Short decodes of one row, NTP, every block size and what else is asked for in turn: see harness.engine.engine.

        Raises:
            DoesNotFitError: the device ran out of memory.
        """
        kinds = [("ntp", 1), *(("blocks", size) for size in block_sizes), *beside]
        with self._as_it_fits():
            rounds = [[self._measured(*kind) for kind in kinds] for _ in range(WARM_ROUNDS + ROUNDS)]
        return [decoded for of_round in rounds[WARM_ROUNDS:] for decoded in of_round]

    def _measured(self, kind: str, width: int) -> Decoded:
        """One decode of passes of a kind of measured_decoder, so many tokens wide."""
        session, generator = MeteredSession(self._measuring, self._clock), torch.Generator().manual_seed(0)
        prompt = tuple(torch.randint(self.shape.vocab, (MEASURED_CONTEXT,), generator=generator).tolist())
        max_new_tokens = MEASURED_BLOCKS * width if kind == "blocks" else NTP_TOKENS
        request = self._request([prompt], max_new_tokens, NEVER, temperature=0.0, seed=0)
        return self._drained(measured_decoder(kind, session, request, width, self._model.filler_id), session)

    def _drained(self, decoder: Decoder, session: MeteredSession) -> Decoded:
        """Run a decoder of ours to its end between marks."""

        def decode(mark: Callable[[], None]) -> Generation:
            next(decoder)  # the prompt pass
            mark()
            generation = drain(decoder)
            mark()
            return generation

        decoded = self._between_marks(decode)
        forward_s = session.forward_s()
        if len(forward_s) != len(decoded.generation.passes):
            raise InvariantError(f"{len(forward_s)} model calls, but {len(decoded.generation.passes)} passes in the trace")
        return replace(decoded, forward_s=forward_s, sampler_s=session.sampler_s())

    def _generated(self, case: Case, request: DecodeRequest) -> Decoded:
        """Decode with generate(); its failure is the outcome of this case and does not end the run."""
        cache, attention = case.arm.cache, case.part.model_attention
        assert cache is not None, "engines of others are not asked here"
        forward = self._compiled_steps if (cache, case.arm.execution) == ("dynamic", "compiled") else None
        try:
            return self._between_marks(
                lambda mark: generate(self._model.module, request, mark=mark, cache=cache, attention=attention, forward=forward)
            )
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            raise NotPossibleError(f"generate() failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from error

    @cached_property
    def _compiled_steps(self) -> Callable[..., Any]:
        """The compiled forward of generate() on a CPU; transformers compiles the model's own where the cache is static."""
        if not can_compile():
            raise NotPossibleError("torch.compile does not work here: it needs g++ and Python's headers (python3-dev)")
        return compiled_steps(self._model.module)

    def _between_marks(self, decode: Callable[[Callable[[], None]], Generation]) -> Decoded:
        """Run ``decode`` with clock and meters around it; it calls its argument after the prefill and at the end."""
        marks: list[float] = []

        def mark() -> None:
            self._clock.synchronise()
            marks.append(self._clock.now_s())

        self._clock.synchronise()
        windows = self._meters.windows if self._meters else None
        if windows:
            windows.open()
        mark()
        generation = decode(mark)
        readings = windows.close() if windows else None
        generation.check_conservation()
        start, prefilled, end = marks
        return Decoded(
            generation=generation,
            prefill_s=prefilled - start,
            decode_s=end - prefilled,
            forward_s=None,
            sampler_s=None,
            readings=readings,
        )

    def _request(
        self, prompts: Sequence[tuple[int, ...]], max_new_tokens: int, stop: StopRule, temperature: float, seed: int
    ) -> DecodeRequest:
        return DecodeRequest(
            prompts=tuple(prompts),
            max_new_tokens=max_new_tokens,
            stop=stop,
            suppressed_ids=self._suppressed,
            temperature=temperature,
            generator=torch.Generator(self._device).manual_seed(seed),
            device=self._device,
            figures=self._figures,
        )


def drain(decoder: Decoder) -> Generation:
    """Run a decoder to its end."""
    while True:
        try:
            next(decoder)
        except StopIteration as stop:
            generation: Generation = stop.value
            return generation


def open_engine(part: Part, group: RankGroup | None = None) -> LocalEngine:
    """Load a part's model and start its clock; with a ``group``, this rank's share of it, on this rank's device.

    Raises:
        UnknownModelError, ScenarioError, DoesNotFitError: see harness.engine.loading.load_model.
        ScenarioError: the device is not there.
    """
    if part.device.startswith("cuda") and not torch.cuda.is_available():
        raise ScenarioError(
            f"part {part.name}: device {part.device} asked for, but torch sees no CUDA device here; "
            "use device: cpu, or run on a machine with a GPU and a CUDA build of torch"
        )
    if group is not None and part.device == "cuda":
        part = part.model_copy(update={"device": f"cuda:{group.ranks.local}"})
    if part.device.startswith("cuda"):
        torch.cuda.set_device(cuda_index(part.device))  # graphs, events and kernels of our own go to the current one
    if part.threads is not None:
        torch.set_num_threads(part.threads)
    gc.unfreeze()  # an earlier part's model was frozen below; what it left in cycles must be found
    gc.collect()
    map_what_comes()
    model = load_model(part, group)
    keep_what_is_freed()
    clock = clock_of(part.device)
    execution = execution_of(part)
    opened = partial(
        open_session, session=part.session, attention=part.attention, execution=execution, leaves_out=not part.timed
    )
    session = opened(model.module, ranks=part.tensor_parallel)
    # Graphs go with a session's buffers, which have as many rows as a batch; passes are measured on one row, between samples.
    measuring = opened(model.module, ranks=part.tensor_parallel) if isinstance(session, GraphedSession) else session
    drafts = DraftModels(
        model, load=lambda choice: load_model(part.model_copy(update={"model": choice, "arms": ()})), open_session=opened
    )
    if group is not None:
        keep_in_step(clock, (session, measuring), group)
    gc.freeze()  # else a collection during a decode walks all of torch and the model
    metered = part.timed and (group is None or group.ranks.leads)
    meters = find_meters(part.device, part.tensor_parallel) if metered else None
    figures = NativeFigures if execution == "native" else None
    return LocalEngine(model, session, torch.device(part.device), clock, meters, drafts, measuring, figures)
