"""A part of a scenario: one model on one device, the arms to be compared on it, their work, and how often.

A part also sets the limits of a valid timed sample, and when a cell has enough repeats.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from harness.config_file import (
    Count,
    CountOrZero,
    Counts,
    Flag,
    Name,
    NonNegative,
    StrictModel,
    YoungerMany,
    distinct,
    folder_of,
    one_or_several,
)
from harness.errors import ScenarioError
from harness.models.choice import ModelChoice, RandomModel, has_chat_template
from harness.scenario.arms import NtpArm
from harness.scenario.load import Load, Loads, by_size
from harness.scenario.method import AUTO, GREEDY, MOST_SAMPLES, refuse_many, widths
from harness.scenario.methods import Arm
from harness.scenario.servers import BESIDE, BaselineEngine, EngineName, Servers, check_servers, finds_acceptance
from harness.workloads.spec import Workload

Dtype = Literal["float32", "bfloat16", "float16", "float64"]
Execution = Literal["eager", "native", "compiled", "graphs"]
"""native: by our own kernels, on a CPU; compiled: by torch.compile, then captured into CUDA graphs; graphs: captured."""
Beside = Literal["causal", "quadratic"]


class HealthLimits(StrictModel):
    """How much disturbance a timed sample may show before its times are void; shared machines need more."""

    kernel: NonNegative = 0.03
    """Share of its usual time by which the calibration kernel may be slower."""
    steal: NonNegative = 0.01
    """Share of the cores' time that the hypervisor may give to others."""


class Until(StrictModel):
    """Repeat until the timing standard error of every arm's log ratio to NTP, prompts held fixed, is small enough."""

    standard_error: NonNegative = 0.01
    """Standard error to reach, of the log ratio: 0.01 is about 1 % of the speedup."""
    at_most: Count = 16
    """Repeats at most; checked after 2, 4, 8 and so on."""


def _template_known(workload: Workload, info: ValidationInfo) -> Workload:
    """Fill in whether the prompts go into the model's chat template, where the model is on this machine."""
    model = info.data.get("model")
    if workload.chat_template != "auto" or model is None:
        return workload
    has = not (workload.synthetic or isinstance(model, RandomModel)) and has_chat_template(model)
    return workload if has is None else workload.model_copy(update={"chat_template": has})


class Part(StrictModel):
    """One model on one device with the arms to be compared on it."""

    name: Name
    """Name of the part, in case ids, claims and tables."""
    model: ModelChoice
    """The model that every arm of the part decodes with."""
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    """Where the model runs: `cpu`, `cuda`, or one GPU as `cuda:1`."""
    dtype: Dtype
    """Number type of weights and activations; all arms have the same."""
    session: Literal["static", "plain"] = "static"
    """How KV is kept: `static` writes into buffers allocated once; `plain` is the cache of transformers, a slow reference."""
    execution: Literal[Execution, "auto"] = "eager"
    """How forwards run. On a GPU: `compiled` by torch.compile and captured into CUDA graphs, the fastest NTP; or `graphs`,
    captured as they are. On a CPU: `native`, by kernels of our own. `auto`: graphs on a GPU, where nothing waits for a
    compiler, on a CPU native if model and machine can. Eager on a GPU measures its host's launches.
    """
    attention: Literal["sdpa", "eager", "flex"] = "sdpa"
    """How attention is computed: `sdpa`; `eager` in a plain session; `flex` in captured forwards on a GPU."""
    threads: Count | None = None
    """CPU threads of a process. Left out: torch's own number; a timed part on a cluster is pinned to as many cores."""
    arms: tuple[Arm, ...] = Field(min_length=1)
    """Ways of decoding to compare; a list on a key of an arm is an axis, and each value an arm of its own."""
    workload: Annotated[Workload, AfterValidator(_template_known)]
    """The prompts, how much is written, and how answers are checked."""
    load: Loads = ()
    """How requests reach the servers, one kind or several. Left out: all of a batch go at once. With it `batch_sizes` is filled
    in: most requests in flight, load by load.
    """
    batch_sizes: Annotated[Counts, Field(validate_default=True)] = (1,)
    """Prompts that one sample decodes together; each size of a list is measured."""
    repeats: Annotated[
        Annotated[Count, Tag("count")] | Annotated[Until, Tag("until")],
        Discriminator(
            lambda value: "count" if isinstance(value, int) else "until" if isinstance(value, dict | Until) else None,
            custom_error_type="unknown_key",
            custom_error_message="give a number, or {standard_error: 0.01, at_most: 16} to repeat until that is reached",
        ),
    ] = 1
    """How often each batch of prompts is decoded, or `{standard_error, at_most}`: until its times are known well."""
    # Added after version 1 of the format: left out at its default, so that digests of older files do not change.
    processes: Annotated[Count, Field(exclude_if=lambda count: count == 1)] = 1
    """All samples are taken so many times, each time in a fresh interpreter. One process is one random draw of everything fixed
    at program start (memory layout, threads, graphs). Verdicts on time need three; six with prompts of their own decide most.
    """
    own_prompts: Annotated[Flag | None, Field(validate_default=True, exclude_if=not_)] = None
    """Every process decodes prompts and seeds of its own, as many of each task; an arm warms up once, and `generate()` is in
    the first process alone. Else all decode the same ones, but for a load, whose requests are drawn anew. Left out: true where
    prompts are generated, or a prompts_file holds enough for all processes; filled in.
    """
    devices: Annotated[tuple[Name, ...], AfterValidator(distinct), YoungerMany] = ()
    """Accelerator types of a cluster, by their Ray names (H100, A100-80G); the part is measured on each, as a part of its own.
    For `sbd run --on ray` only.
    """
    tensor_parallel: Annotated[Count, Field(exclude_if=lambda count: count == 1)] = 1
    """The model is split over so many processes, each with a GPU of its own, or all on the CPU."""
    warmup: CountOrZero = 4
    """Decodes of every timed case before it counts, at most; fewer where two in a row take the same time."""
    seed: CountOrZero = 1
    """Seed of random weights, generated prompts, the order of samples, and sampling."""
    timed: Flag = True
    """Whether times count. False: passes and accuracy alone, without warm-ups, in batches of any size."""
    health: HealthLimits = HealthLimits()
    """How much disturbance a timed sample may show before its times are void."""
    baseline: Name | None = None
    """Another part whose NTP arm is the baseline, for a model that predicts no next tokens. Left out: this part's own."""
    baseline_check: CountOrZero = 8
    """transformers' `generate()` decodes so many batches of every task too, to show that the NTP arm is not slow; 0: none."""
    baseline_engines: Annotated[tuple[BaselineEngine, ...], *one_or_several(BaselineEngine), YoungerMany] = ()
    """Engines of others that decode the batches of `baseline_check` too, with the same weights and cores: `installed`, or some
    by name. Left out: none. `sbd run --engines` holds NTP against all that are installed.
    """
    servers: Servers = Field(default_factory=dict)
    """Inference servers by name, which decode the arms instead of this program. `model` then gives the weights, the prompts'
    tokens and the shape that predictions are made of.
    """

    def load_at(self, in_flight: int) -> Load | None:
        """The load of the cells of a batch size; None where all requests of a batch go at once."""
        return by_size(self.load, self.workload.prompt_count).get(in_flight)

    @property
    def until(self) -> Until | None:
        """When to stop repeating; None where the number of repeats is given."""
        return self.repeats if isinstance(self.repeats, Until) else None

    @property
    def most_repeats(self) -> int:
        """Repeats of every batch, at most."""
        return self.repeats.at_most if isinstance(self.repeats, Until) else self.repeats

    @property
    def warmups(self) -> int:
        """Warm-up decodes of every case, at most; what is not timed needs none."""
        return self.warmup if self.timed else 0

    @property
    def model_attention(self) -> str:
        """The attention that transformers is told to use, if the session does not attend itself."""
        return "eager" if self.attention == "eager" else "sdpa"

    @property
    def engine(self) -> dict[str, object]:
        """All settings of what is loaded for this part; parts with equal ones can share one engine."""
        return self.model_dump(
            include={
                "model",
                "device",
                "dtype",
                "session",
                "execution",
                "attention",
                "threads",
                "timed",
                "seed",
                "tensor_parallel",
                "servers",
            }
        )

    @property
    def has_ntp(self) -> bool:
        """Whether the part has its own baseline."""
        return any(isinstance(arm, NtpArm) for arm in self.arms)

    @property
    def unchecked_baseline(self) -> str | None:
        """Why the NTP arm is not checked against generate(); None where it is."""
        if not self.timed:
            return "this part was not timed"
        if not self.has_ntp:
            return "this part has no NTP arm"
        if self.servers:
            return "a server decodes NTP, and how fast it could be is its own engine's affair"
        if self.baseline_check == 0:
            return "the scenario leaves it out (baseline_check: 0)"
        if self.workload.stop_strings:
            return "generate() was not asked to stop at stop_strings"
        greedy = any(GREEDY in arm.temperature for arm in self.arms if isinstance(arm, NtpArm))
        return None if greedy else "the NTP arm is not greedy"

    @property
    def may_be_native(self) -> bool:
        """Whether its forwards are native where machine and model can."""
        asked = self.device, self.session, self.tensor_parallel
        return asked == ("cpu", "static", 1) and self.execution in ("auto", "native")

    @property
    def takes_engines(self) -> bool:
        """Whether NTP can be held against engines of others: one process of our own decodes a checkpoint."""
        return not (isinstance(self.model, RandomModel) or self.servers or self.tensor_parallel > 1)

    @property
    def engines_beside(self) -> tuple[EngineName, ...]:
        """The engines that NTP is held against."""
        return tuple(name for name in BESIDE if {name, "installed"} & {*self.baseline_engines})

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """The block sizes of all arms that decode in blocks, in order."""
        return tuple(dict.fromkeys(size for arm in self.arms for size in widths(arm, "block_size")))

    @property
    def needs_mask(self) -> bool:
        """Whether an arm feeds masks and reads what the model says of them."""
        return bool(self.block_sizes) and not (self.replayed or self.servers)

    @property
    def measured_beside(self) -> tuple[tuple[Beside, int], ...]:
        """Kinds of passes whose cost SBD's do not tell, because a gated adapter makes some passes dearer than others: the check
        of drafts without it, by tokens, and quadratic self-speculation with it, by block size. None without an adapter.
        """
        if getattr(self.model, "adapter", None) is None:
            return ()
        found: dict[tuple[Beside, int], None] = {}
        for arm in self.arms:
            found |= {("causal", drafts + 1): None for drafts in widths(arm, "draft_tokens")}
            if "quadratic" in getattr(arm, "form", ()):
                found |= {("quadratic", size): None for size in widths(arm, "block_size")}
        return tuple(found)

    @property
    def replayed(self) -> bool:
        """Whether the part's acceptance is replayed; then every arm writes ``max_new_tokens`` tokens, stops suppressed."""
        return any(False in finds_acceptance(arm, self.servers) for arm in self.arms)

    @property
    def case_count(self) -> int:
        """Cases of arms in the plan. Raises ValueError where they are too many to be listed."""
        settings = 0
        for arm in self.arms:
            settings += len(arm.points())
            refuse_many(settings, "settings of the arms of one part")
        return settings * len(self.batch_sizes) * len(self.workload.task_names) * max(1, len(self.devices))

    @field_validator("own_prompts")
    @classmethod
    def _own_where_plenty(cls, asked: bool | None, info: ValidationInfo) -> bool | None:
        """Filled in while a file is read; what a record holds is as it was. No is None, as in older records."""
        workload, processes = info.data.get("workload"), info.data.get("processes", 1)
        if asked is False or folder_of(info) is None or workload is None:
            return asked or None
        needed = processes * workload.prompt_count
        enough = processes > 1 and not info.data.get("load") and workload.holds(needed)
        if asked and not enough:
            raise ValueError(
                f"got true, but {processes} processes with {workload.prompt_count} prompts each take {needed} of every task, "
                "and no load; give fewer prompts or several processes, or remove own_prompts"
            )
        return enough or None

    @field_validator("batch_sizes")
    @classmethod
    def _of_the_loads(cls, given: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        """With a load its sizes; 1 is the default, which nobody need have written."""
        loads, workload = info.data.get("load"), info.data.get("workload")
        if not loads or workload is None:
            return given
        sizes = tuple(by_size(loads, workload.prompt_count))
        if given not in ((1,), sizes):
            raise ValueError(f"got {list(given)}, but load says how many are in flight: {list(sizes)}; remove batch_sizes")
        return sizes

    @model_validator(mode="after")
    def _can_be_finished(self) -> Part:
        refuse_many(self.case_count, "cases in one part")
        each = self.processes * (self.workload.prompt_count * self.most_repeats + self.warmups)
        what = "samples, at most, in one part (cases x processes x prompts x repeats)"
        refuse_many(self.case_count * each, what, MOST_SAMPLES)
        return self

    @model_validator(mode="after")
    def _arms_make_sense(self) -> Part:
        if not self.has_ntp and self.baseline is None:
            raise ValueError("no arm to compare with: add {method: ntp} to arms, or name a part that has one as baseline")
        check_servers(self.servers, self.arms, self.model, self.tensor_parallel)
        if self.baseline_engines and not self.takes_engines:
            raise ValueError(
                "baseline_engines: other engines load a checkpoint beside our own, in one process; this model is random, split "
                "or on servers; remove the key"
            )
        if self.load and not self.servers:
            raise ValueError("load is how requests reach a server, and the part has no servers; remove load")
        acceptances = {one for arm in self.arms if not isinstance(arm, NtpArm) for one in finds_acceptance(arm, self.servers)}
        if len(acceptances) > 1:
            raise ValueError("real and replayed acceptance need different stop rules; give the replayed arms their own part")
        variants = [point for arm in self.arms for point in arm.points()]
        cannot = not self.timed or self.replayed or self.tensor_parallel > 1 or isinstance(self.model, RandomModel)
        if cannot and any(AUTO in variant for variant in variants):
            raise ValueError("auto is not for timed: false, replays, tensor_parallel or random weights; give a number")
        if len(set(map(str, variants))) < len(variants):
            raise ValueError("two arms make the same case; remove one, or change a value")
        return self

    @model_validator(mode="after")
    def _session_can_run(self) -> Part:
        if self.session == "plain" and self.execution not in ("eager", "auto"):
            wanted = f"for execution: {self.execution} use session: static"
            raise ValueError(f"the plain session is the slow reference and runs eagerly; {wanted}")
        if self.session == "static" and self.attention == "eager":
            raise ValueError("the static session brings its own attention (sdpa, flex); for eager use session: plain")
        if self.attention == "flex" and (self.session == "plain" or self.device == "cpu" or self.execution == "eager"):
            raise ValueError(
                "attention: flex is how captured forwards read their buffers; use session: static, device: cuda and execution: "
                "auto, graphs or compiled"
            )
        if self.tensor_parallel > 1 and ":" in self.device:
            raise ValueError(f"tensor_parallel gives every process a GPU of its own, but device is {self.device}; use cuda")
        if self.tensor_parallel > 1 and self.execution in ("native", "compiled"):
            raise ValueError(f"a model split by tensor_parallel is not {self.execution}; use execution: eager, graphs or auto")
        return self

    @model_validator(mode="after")
    def _workload_fits(self) -> Part:
        without_tokenizer = isinstance(self.model, RandomModel)
        if without_tokenizer and self.workload.synthetic is None:
            raise ValueError("a random model has no tokenizer; use workload: {synthetic: {prompt_tokens: 128}, ...}")
        if without_tokenizer and any(arm.method == "universal_draft" for arm in self.arms):
            raise ValueError("a random model has no tokenizer to translate drafts with; use method: draft_model")
        ragged = [size for size in self.batch_sizes if self.workload.prompt_count % size and not self.load]
        if not self.timed and self.until is not None:
            raise ValueError("repeats until the times are known well, but timed is false; give a number of repeats")
        if not self.timed and self.processes > 1:
            raise ValueError("processes repeats what is timed in fresh interpreters, but timed is false; leave processes out")
        if self.timed and ragged:
            raise ValueError(
                f"{self.workload.prompts} prompts do not fill batches of {ragged[0]}: the last batch would be timed at another "
                "size; use a multiple, or timed: false"
            )
        return self

    @model_validator(mode="after")
    def _loads_fit(self, info: ValidationInfo) -> Part:
        for load in self.load:
            whole = load.per_sample(self.workload.prompt_count)
            if load.trace is None and self.workload.prompt_count % whole:
                raise ValueError(
                    f"{self.workload.prompt_count} prompts do not fill samples of {whole} requests; ask for a multiple, or "
                    "change requests in load"
                )
            if load.trace is not None and folder_of(info) is not None:
                _refuse_longer(load, self.workload.max_new_tokens)
        return self


def _refuse_longer(load: Load, max_new_tokens: int) -> None:
    try:
        longest = max(load.traced or (), key=lambda one: one.output_tokens)
    except ScenarioError as error:
        raise ValueError(str(error)) from error
    if longest.output_tokens > max_new_tokens:
        raise ValueError(
            f"{load.trace}:{longest.line}: asks for {longest.output_tokens:,} tokens, and max_new_tokens is "
            f"{max_new_tokens:,}; raise it, or ask for fewer requests of the trace"
        )
