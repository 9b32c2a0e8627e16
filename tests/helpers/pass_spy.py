"""What a session is fed and keeps, pass by pass and row by row."""

from __future__ import annotations

import torch


class PassSpy:
    """Wraps a session: for every pass and row what was committed, the tokens fed in each segment, and the logits."""

    def __init__(self, inner):
        self.inner, self.calls = inner, []

    context_tokens = property(lambda self: self.inner.context_tokens)
    context_width = property(lambda self: self.inner.context_width)

    def reset(self, rows, capacity):
        """Start a batch."""
        self.committed = [[] for _ in range(rows)]
        self.inner.reset(rows, capacity)

    def forward(self, segments):
        """Record the call, row by row; the sampler changes logits in place, so they are copied."""
        logits = self.inner.forward(segments)
        logits = logits[:, logits.shape[1] - sum(s.logits for s in segments) :]
        self.last, self.real = [], []
        for row, committed in enumerate(self.committed):
            fed, at, self.real = {}, 0, [*self.real, []]
            for segment in segments:
                real = [True] * segment.tokens.shape[1] if segment.valid is None else segment.valid[row].tolist()
                self.real[row] += real
                if any(real):
                    tokens = [t for t, ok in zip(segment.tokens[row].tolist(), real, strict=True) if ok]
                    wanted = torch.tensor(real[len(real) - segment.logits :], dtype=torch.bool)
                    fed[segment.visibility] = tokens, logits[row, at : at + segment.logits][wanted].clone()
                at += segment.logits
            self.last.append(fed)
            self.calls.append((row, list(committed), fed))
        return logits

    def keep(self, counts):
        """Follow what is committed; a prompt's padding is no token."""
        for committed, fed, real, count in zip(self.committed, self.last, self.real, counts, strict=True):
            tokens = [token for tokens, _ in fed.values() for token in tokens]
            committed += tokens[: sum(real[:count])]
        self.inner.keep(counts)

    def read(self, tokens):
        """Pass on."""
        return self.inner.read(tokens)
