"""What sbd must know of the method and the solver. Loads no torch, so that planning and reporting need none."""

from typing import Literal

from harness.config_file import Counts, Numbers
from harness.scenario.method import GREEDY, ArmKeys, ArmSettings, Method, per_token
from harness.scenario.solvers import SolverSpec


class RepetitionSettings(ArmSettings):
    """What the decoder reads: one value of every key."""

    draft_tokens: int


class RepetitionArm(ArmKeys):
    """Its keys in a scenario. The text below a key describes it in the schema that editors show."""

    axes = ("temperature", "draft_tokens")
    lossless = True
    settings = RepetitionSettings
    method: Literal["repetition"]
    """Drafts that the newest token is repeated."""
    draft_tokens: Counts = (3,)
    """How often it is repeated."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature."""


REPETITION: Method[RepetitionSettings] = Method(
    name="repetition",
    arm=RepetitionArm,
    decoder="my_method.decoding:decode",
    arm_id=lambda arm, replay: f"repetition-n{arm.draft_tokens}",
    label=lambda arm, replay: f"repetition n={arm.draft_tokens}",
    widest=lambda arm, prompt, new: (arm.draft_tokens + 1,) * 2,
    passes=lambda arm, prompt, new, passes_of: per_token(prompt, new - 1, ("verify", arm.draft_tokens + 1, 1, 1)),
)
LEFTMOST = SolverSpec(sweep={"tokens": (1, 2)}, reads=(), words="leftmost", source="a toy", rule="my_method.decoding:leftmost")
