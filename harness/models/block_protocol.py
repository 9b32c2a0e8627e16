"""How a public model that decodes in blocks is driven: which tokens a pass feeds, what they see, when KV is kept, which slots
may be decided. Plain values; harness.decoding.block_diffusion is the decoder they steer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Layout = Literal["blocks", "window", "canvas"]
Commit = Literal["own_pass", "merged"]
COMMITS: tuple[Commit, ...] = get_args(Commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProtocol:
    """One way of decoding in blocks of k slots. The defaults are those of block diffusion (BD3-LM, arXiv 2503.09573).

    ``layout``      blocks: one block after another over a KV cache. window: k slots opened anew behind every pass, the last
                    token fed twice, once for its KV and once as the window's first (SDLM). canvas: no KV cache, every pass
                    feeds the prompt and all slots of the answer, and only those of the current block may be decided
    ``committed``   what the tokens whose KV is kept saw of their own block: causal, or block (all of it); None: no cache
    ``borders``     where blocks begin: right behind the prompt (answer), or at multiples of k from the first token of the
                    sequence, so that the first block holds the prompt's last tokens too (sequence)
    ``prediction``  whether position i predicts its own token, or the one behind it (shifted)
    ``commit``      a pass of its own writes the KV of a full block, or the first pass of the next block does (merged)
    ``first_slot``  drafted like every other, or committed: taken from the logits behind the last committed token
    ``sub_block``   slots of a block are decided in runs of so many, from left to right; None: all at once
    ``last_block``  whole: masks behind the length limit are fed; cut: they are not (where blocks begin behind the prompt)
    """

    layout: Layout = "blocks"
    committed: Literal["causal", "block"] | None = "block"
    borders: Literal["answer", "sequence"] = "answer"
    prediction: Literal["own", "shifted"] = "own"
    commit: Commit | None = "own_pass"
    first_slot: Literal["drafted", "committed"] = "drafted"
    sub_block: int | None = None
    last_block: Literal["whole", "cut"] = "whole"

    @property
    def may_merge(self) -> bool:
        """Whether committing can wait for the next block's first pass: not where that block begins with what it says."""
        return self.layout == "blocks" and self.first_slot == "drafted"

    @property
    def is_set_block(self) -> bool:
        """Whether the model is used as SBD uses one (arXiv 2509.04185): causal KV, every slot predicts its own token."""
        return self.layout == "blocks" and self.committed == "causal" and self.prediction == "own"

    def in_words(self, block_size: int) -> list[str]:
        """The protocol as short sentences."""
        slots = {"own": "slot i predicts token i", "shifted": "position i predicts token i + 1"}[self.prediction]
        if self.layout == "canvas":
            return [f"no KV cache: every pass feeds prompt and answer, decided in blocks of {block_size}", slots]
        if self.layout == "window":
            return [f"a window of {block_size} slots opened anew behind every pass", "causal KV, kept in the same pass", slots]
        begins = {"answer": "begins right behind the prompt", "sequence": f"begins at multiples of {block_size} tokens"}
        sees = {"causal": "causal KV", "block": "KV of a block whose tokens saw all of it"}[self.committed or "block"]
        how = {"own_pass": "written by a pass of its own", "merged": "written by the next block's first pass"}
        said = [f"blocks of {block_size}; a block {begins[self.borders]}", f"{sees}, {how[self.commit or 'own_pass']}", slots]
        if self.first_slot == "committed":
            said.append("a block's first slot comes from the pass that wrote the KV before it")
        if self.sub_block:
            said.append(f"slots are decided in runs of {self.sub_block}, from left to right")
        return said
