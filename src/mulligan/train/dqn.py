"""DQN: masked double Q-learning of which candidate to show, or none (SPEC A3.6).

After Mnih et al. (2015) and van Hasselt et al. (2016). In: `Rows` of decision points that an exploring policy left behind, or decisions
as they come. Out: weights for `read.learned.Dqn`. Several networks, one a seed, are trained side by side in the same tensors; serving
takes their mean. Settings are SPEC A3.6's. Q is shared over the slots and skip has a head of its own, so values do not depend on the
order of the candidates.

Not promised: that it beats a fixed rule. With a few hundred decisions of one or two steps each, regression on paired branches is the same
thing with less noise; `docs/results` says what came of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from mulligan.read.features import SLOT, Floats
from mulligan.read.weights import Weights
from mulligan.train.rows import GAMMA, Rows, scales, standardised
from mulligan.train.stacked import Layer

WIDTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """SPEC A3.6, without its exploring policy: rows come from rounds that make every choice equally often, so there is no epsilon and
    nothing to warm up. `updates` 0 means one a decision, and no fewer than `least`: small logs are gone over again.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    gamma: float = GAMMA
    rate: float = 3e-4
    decay: float = 1.0  # of the weights: without it noise is learnt by heart after some thousand updates (docs/results/learning.md)
    batch: int = 64
    replay: int = 20_000
    copy_every: int = 250
    clip: float = 10.0
    updates: int = 0
    least: int = 4_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Steps for every seed: shapes (seeds, B, ...). `next_*` is where the step led; `end` is true where the episode ended."""

    g: Tensor
    x: Tensor
    mask: Tensor
    action: Tensor
    reward: Tensor
    end: Tensor
    next_g: Tensor
    next_x: Tensor
    next_mask: Tensor


class Network(nn.Module):
    """Q of skip and of every slot for several seeds at once: (seeds, B, 1 + S), minus infinity where there is no candidate."""

    def __init__(self, size: int, seeds: Sequence[int], width: int = WIDTH) -> None:
        super().__init__()
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.show = _head(size + 2 * len(SLOT), width, generators)
        self.skip = _head(size + len(SLOT), width, generators)

    def forward(self, g: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """Shapes (seeds, B, G), (seeds, B, S, 11) and (seeds, B, S)."""
        n = mask.sum(-1, keepdim=True)[..., None]
        x = x * mask[..., None]
        rest = torch.where(n > 1, (x.sum(-2, keepdim=True) - x) / (n - 1).clamp(min=1), torch.zeros_like(x))
        wide = g[..., None, :].expand(*x.shape[:-1], g.shape[-1])
        show = self.show(torch.cat([wide, x, rest], -1)).squeeze(-1)
        best = torch.where(n > 0, x.masked_fill(~mask[..., None], -torch.inf).amax(-2, keepdim=True), torch.zeros(())).squeeze(-2)
        skip = self.skip(torch.cat([g, best], -1))
        return torch.cat([skip, show.masked_fill(~mask, -torch.inf)], -1)


def _head(size: int, width: int, generators: Sequence[torch.Generator]) -> nn.Sequential:
    """Three layers, stacked over seeds."""
    return nn.Sequential(Layer(size, width, generators), nn.ReLU(), Layer(width, width, generators), nn.ReLU(), Layer(width, 1, generators))


@dataclass
class Learner:
    """The networks, their targets and the optimiser."""

    size: int  # of g
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.online, self.target = (Network(self.size, self.settings.seeds) for _ in range(2))
        self.target.load_state_dict(self.online.state_dict())
        self._parameters = list(self.online.parameters())
        self._optimiser = torch.optim.AdamW(self._parameters, lr=self.settings.rate, weight_decay=self.settings.decay, fused=True)
        self.updates = 0

    def update(self, batch: Batch) -> float:
        """One step of every seed's network on its own batch; the mean loss."""
        loss = nn.functional.smooth_l1_loss(self._chosen(batch), self.targets(batch), reduction="none").mean(-1)
        self._optimiser.zero_grad(set_to_none=True)
        loss.sum().backward()
        self._clip()
        self._optimiser.step()
        self.updates += 1
        if self.updates % self.settings.copy_every == 0:
            self.target.load_state_dict(self.online.state_dict())
        return float(loss.detach().mean())

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """y = r + gamma (1 - end) Q_target(o', argmax over valid a of Q_online(o', a)): (seeds, B)."""
        best = self.online(batch.next_g, batch.next_x, batch.next_mask).argmax(-1, keepdim=True)
        then = self.target(batch.next_g, batch.next_x, batch.next_mask).gather(-1, best).squeeze(-1)
        return batch.reward + self.settings.gamma * torch.where(batch.end, torch.zeros(()), then)

    def _chosen(self, batch: Batch) -> Tensor:
        return self.online(batch.g, batch.x, batch.mask).gather(-1, batch.action[..., None]).squeeze(-1)

    def _clip(self) -> None:
        """Bound each seed's gradient by itself, so that seeds do not feel one another."""
        norms = torch.stack([p.grad.flatten(1).norm(dim=1) for p in self._parameters if p.grad is not None]).norm(dim=0)
        share = (self.settings.clip / norms.clamp(min=1e-12)).clamp(max=1.0)
        for p in self._parameters:
            if p.grad is not None:
                p.grad.mul_(share[:, None, None])

    def exported(self, scale: Mapping[str, Floats], domains: Sequence[str]) -> Weights:
        """The online networks as plain arrays."""
        arrays = dict(scale)
        for name, head in (("show", self.online.show), ("skip", self.online.skip)):
            for n, layer in enumerate(head[::2]):
                arrays |= {f"{name}.{n}.weight": layer.weight.detach().numpy(), f"{name}.{n}.bias": layer.bias.detach().numpy()}
        return Weights(kind="dqn", arrays=arrays, domains=tuple(domains))


class Replay:
    """The last so many steps of any rows, drawn from uniformly; every seed draws its own."""

    def __init__(self, known: Rows, scale: Mapping[str, Floats], settings: Settings) -> None:
        g, x = standardised(known, scale)
        keep = settings.replay
        self._g, self._x, self._mask = (torch.as_tensor(a[-keep:]) for a in (g, x, known.mask))
        self._action, self._reward = torch.as_tensor(known.action[-keep:]), torch.as_tensor(known.reward[-keep:])
        self._end = torch.as_tensor(known.follows[-keep:] < 0)
        self._next = torch.as_tensor(np.maximum(known.follows[-keep:] - max(0, len(known) - keep), 0))
        self._generators = [torch.Generator().manual_seed(seed) for seed in settings.seeds]
        self._batch = settings.batch

    def draw(self) -> Batch:
        """One batch a seed."""
        at = torch.stack([torch.randint(len(self._action), (self._batch,), generator=g) for g in self._generators])
        then = self._next[at]
        return Batch(
            *(part[at] for part in (self._g, self._x, self._mask, self._action, self._reward, self._end)),
            *(part[then] for part in (self._g, self._x, self._mask)),
        )


def train(known: Rows, settings: Settings | None = None) -> tuple[Weights, list[float]]:
    """Learn off-policy from all of `known`; weights, and the loss of every update."""
    settings = settings or Settings()
    scale = scales(known)
    learner, replay = Learner(known.g.shape[1], settings), Replay(known, scale, settings)
    updates = settings.updates or max(len(known), settings.least)
    losses = [learner.update(replay.draw()) for _ in range(updates)]
    return learner.exported(scale, known.domains), losses
