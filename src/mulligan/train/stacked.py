"""A linear layer for several seeds at once: what all small networks here are made of."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """Weights (seeds, in, out) and biases (seeds, 1, out), each seed's drawn by its own generator as torch's own linear layers begin."""

    def __init__(self, into: int, out: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        drawn = [(torch.rand(into, out, generator=g), torch.rand(1, out, generator=g)) for g in generators]
        self.weight = nn.Parameter(torch.stack([(2 * w - 1) * into**-0.5 for w, _ in drawn]))
        self.bias = nn.Parameter(torch.stack([(2 * b - 1) * into**-0.5 for _, b in drawn]))

    def forward(self, rows: Tensor) -> Tensor:
        """(seeds, ..., in) to (seeds, ..., out)."""
        flat = torch.baddbmm(self.bias, rows.reshape(rows.shape[0], -1, rows.shape[-1]), self.weight)
        return flat.reshape(*rows.shape[:-1], -1)
