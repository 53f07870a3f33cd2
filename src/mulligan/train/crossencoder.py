"""The large scorer of sets: a transformer with LoRA that reads the task and the whole set as text (UpliftMem; SPEC C3).

In: examples, one a task, with sets that were tried and what is believed of their uplift; an encoder or a reranker. Out: an adapter and a
head in a folder, calibrated on a fifth of the tasks, which training did not see; and the selector that serves them. The value of a set is
what the network says of it less what it says of no lesson at all. Members are read in random order while training and in the order of
their ids when serving. Losses and calibration are those of `train.uplift`. Not promised: speed. A decision takes hundreds of readings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from torch import Tensor, nn

from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData, MissingExtra
from mulligan.read import weights as files
from mulligan.read.features import Floats
from mulligan.read.reconstruction import lesson
from mulligan.read.sets import Score, Set
from mulligan.read.uplift import chosen
from mulligan.read.weights import Weights
from mulligan.records import Candidate, Record, Selection, Situation
from mulligan.train import uplift
from mulligan.train.encoders import LENGTH, Encoder, Page, asked, open_encoder
from mulligan.train.uplift import Calibration, Losses
from mulligan.train.uplift import Example as Small

HELD = 5  # every so many-th task is left for calibration
DIM = 256  # of vectors that tell which lessons are alike
READINGS = 16  # texts that go through the network together when serving
ADAPTER, HEAD = "adapter_model.safetensors", "head.safetensors"
LARGEST_RANK, SHORTEST = 1_024, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Losses):
    """UpliftMem's where its paper gives them (SPEC C1). The head is new and learns faster than the adapter of a network that can read."""

    seed: int = 0
    size: int = 5  # K: records a set
    length: int = LENGTH  # tokens of a text
    rank: int = 8
    alpha: int = 16
    dropout: float = 0.1
    rate: float = 1e-5
    head_rate: float = 1e-3
    epochs: int = 3
    batch: int = 8  # tasks an update
    together: int = 1  # of which so many go through the network at once: memory against speed, the same gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One task as text with its candidates, and what was learnt of m sets of their places, as in `train.uplift.Example`."""

    asked: str
    records: tuple[Record, ...]
    sets: tuple[Set, ...]
    uplift: Floats
    variance: Floats
    believed: Floats

    @classmethod
    def of(cls, text: str, records: Sequence[Record], known: Small) -> "Example":
        """What the small scorer learns of the same task and candidates, with the texts in the place of features."""
        return cls(
            asked=text,
            records=tuple(records),
            sets=known.sets,
            uplift=known.uplift,
            variance=known.variance,
            believed=known.believed,
        )


class Scorer(nn.Module):
    """An adapted network and a head on it; `knots` (2, k) map its scores to uplifts."""

    def __init__(self, encoder: Encoder, settings: Settings) -> None:
        """Puts the adapter into the encoder's network, so an encoder serves one scorer. A fresh one adds nothing on top of an encoder."""
        super().__init__()
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError as error:
            raise MissingExtra(f"a cross-encoder needs {error.name}: pip install 'mulligan[train]'") from None
        self.encoder, self.settings = encoder, settings
        adapter = LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules="all-linear",
            exclude_modules=r".*\b(pooler|classifier|score)\b.*",  # what is on top of the states: the head is ours
        )
        with catch_warnings():
            simplefilter("ignore", FutureWarning)  # peft 0.21 asks transformers 5 for a name that will go
            self.body = get_peft_model(encoder.body, adapter)
        self.head = nn.Linear(encoder.width, 1, bias=False)  # a bias would cancel
        nn.init.constant_(self.head.weight, 0.1 if encoder.ranks else 0.0)
        self.knots: Floats = np.array([[-1, 1], [-1, 1]], np.float32)

    def forward(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Values of texts, (n,): to be read against those of the same task without lessons."""
        device = self.head.weight.device
        tokens = {name: array.to(device) for name, array in self.encoder.read(pairs).items()}
        found: Tensor = self.head(self.encoder.states(self.body, tokens)).squeeze(-1)
        return found

    def of(self, text: str, records: Sequence[Record]) -> Score:
        """What gives scores of sets of `records` on a task, not calibrated, by reading each set once; the empty set's is 0.

        A set of which not one lesson fits into the network's length scores 0 too.
        """
        page, known = self.encoder.page(text, records), dict[tuple[str, str], float]()

        def score(sets: Sequence[Set]) -> Floats:
            pairs, empty = [page.canonical(one) for one in sets], page.pair(())
            self._read([pair for pair in dict.fromkeys([empty, *pairs]) if pair not in known], known)
            return np.array([known[pair] - known[empty] for pair in pairs], np.float32)

        return score

    def calibrated(self, scores: Floats) -> Floats:
        """Scores as uplifts in success; 0, the score of nothing to read, stays."""
        return np.where(scores == 0, 0, np.interp(scores, self.knots[0], self.knots[1])).astype(np.float32)

    def _read(self, pairs: Sequence[tuple[str, str]], known: dict[tuple[str, str], float]) -> None:
        """Adds the values of `pairs`, which are read beside others of about the same length."""
        pairs = sorted(pairs, key=lambda pair: len(pair[1]))
        self.eval()
        with torch.inference_mode():
            for start in range(0, len(pairs), READINGS):
                part = pairs[start : start + READINGS]
                values = self(part)
                if not torch.isfinite(values).all():
                    raise InvalidData("the cross-encoder gives values that are no numbers: train again")
                known |= dict(zip(part, values.tolist(), strict=True))


def fit(examples: Sequence[Example], settings: Settings | None = None, *, encoder: str = "minilm") -> tuple[Scorer, Calibration]:
    """Train a scorer and calibrate it on every fifth task (on all, where there are fewer than ten). Raises ValueError when no example
    has a set, MissingExtra and UsageError as `open_encoder` does.
    """
    settings, examples = settings or Settings(), [e for e in examples if e.sets]
    if not examples:
        raise ValueError("no task with a set that was tried")
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        scorer = _placed(Scorer(open_encoder(encoder, settings.length), settings))
        held = examples[::HELD] if len(examples) >= 2 * HELD else examples
        seen = [e for n, e in enumerate(examples) if held is examples or n % HELD]
        train(scorer, seen, settings)
    scores = np.concatenate([scorer.of(e.asked, e.records)(e.sets) for e in held])
    calibration = uplift.calibration(scores.astype(np.float64), np.concatenate([e.uplift for e in held]).astype(np.float64))
    scorer.knots = calibration.knots
    return scorer, calibration


def train(scorer: Scorer, examples: Sequence[Example], settings: Settings) -> list[float]:
    """Go through the examples in an order, and with orders of members, that torch's generator draws; the loss of every update."""
    pages = [scorer.encoder.page(e.asked, e.records) for e in examples]
    adapter = [p for p in scorer.body.parameters() if p.requires_grad]
    groups = [{"params": adapter, "lr": settings.rate}, {"params": scorer.head.parameters(), "lr": settings.head_rate}]
    optimiser = torch.optim.AdamW(groups)
    found = []
    for _ in range(settings.epochs):
        for batch in torch.randperm(len(examples)).split(settings.batch):
            optimiser.zero_grad(set_to_none=True)
            found.append(backward(scorer, [(pages[n], examples[n]) for n in batch], settings))
            optimiser.step()
    return found


def backward(scorer: Scorer, batch: Sequence[tuple[Page, Example]], settings: Settings) -> float:
    """Add up the gradients of a batch, `together` tasks at a time; the loss."""
    scorer.train()
    device = scorer.head.weight.device
    orders = [[torch.randperm(len(one)).tolist() for one in e.sets] for _, e in batch]
    certain = sum(float(uplift.certainty(torch.as_tensor(e.variance)).sum()) for _, e in batch)
    total = 0.0
    for start in range(0, len(batch), settings.together):
        part = list(zip(batch, orders, strict=True))[start : start + settings.together]
        pairs = [[p.pair(()), *(p.pair([s[n] for n in o]) for s, o in zip(e.sets, own, strict=True))] for (p, e), own in part]
        values = scorer([pair for own in pairs for pair in own]).split([len(own) for own in pairs])
        loss = torch.zeros((), device=device)
        for ((_, e), _), own in zip(part, values, strict=True):
            known = {name: torch.as_tensor(getattr(e, name), device=device) for name in ("uplift", "variance", "believed")}
            value, _, policy = uplift.terms(own[1:] - own[0], {**known, "tried": torch.ones_like(own[1:])}, settings)
            loss = loss + settings.value * value / certain + settings.policy * settings.policy_share * policy / len(batch)
        loss.backward()
        total += float(loss.detach())
    return total


def save(scorer: Scorer, folder: Path) -> None:
    """Write the adapter and the head into `folder`. The head comes last: without it a folder is not read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HEAD).unlink(missing_ok=True)
    scorer.body.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)
    s = scorer.settings
    numbers = {name: np.array([getattr(s, name)], np.float32) for name in ("size", "length", "rank", "alpha")}
    arrays = {"head": scorer.head.weight.detach().cpu().numpy(), "knots": scorer.knots, **numbers}
    files.save(Weights(kind="crossencoder", arrays=arrays, embedder=scorer.encoder.id), folder / HEAD)


def load(folder: Path, encoder: str = "") -> Scorer:
    """The scorer in `folder`, for serving, on the encoder that it was made with: under its old name, on this machine, or under `encoder`.

    Raises UsageError where a file or the encoder is missing, InvalidData for files that do not fit one another or another encoder.
    """
    kept = files.load(folder / HEAD, ["crossencoder"])
    name, _, digest = kept.embedder.rpartition(":")
    size, length, rank, alpha = (int(kept.array(one, 1)[0]) for one in ("size", "length", "rank", "alpha"))
    if size < 1 or length < SHORTEST or not 1 <= rank <= LARGEST_RANK:
        raise InvalidData(f"{folder / HEAD} has settings out of range: train again")
    found = open_encoder(encoder or name, length, fetch=bool(encoder))  # a file that names a model is no reason to ask the network
    if found.id.rpartition(":")[2] != digest:
        raise InvalidData(f"{folder} was trained on another encoder than {encoder or name}: name that one, or train again")
    scorer = Scorer(found, Settings(size=size, length=length, rank=rank, alpha=alpha))
    _adapt(scorer, folder / ADAPTER)
    scorer.body.merge_adapter()  # reads a sixth faster
    scorer.head.weight.data = torch.as_tensor(kept.array("head", 1, found.width))
    scorer.knots = kept.array("knots", 2, -1)
    return _placed(scorer)


def _placed(scorer: Scorer) -> Scorer:
    """On the accelerator, where there is one."""
    found: Scorer = scorer.to("cuda" if torch.cuda.is_available() else "cpu")
    return found


def _adapt(scorer: Scorer, path: Path) -> None:
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        told = set_peft_model_state_dict(scorer.body, load_file(path))
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise InvalidData(f"{path} is no adapter for this encoder: {' '.join(str(error).split())[:300]}") from error
    if told.unexpected_keys or any("lora_" in name for name in told.missing_keys):
        raise InvalidData(f"{path} is an adapter of other layers: train again")


class CrossEncoder:
    """Chooses among candidate sets as `read.uplift.Uplift` does. Which lessons are alike is told by their words."""

    name = "crossencoder"

    def __init__(self, weights: Path, encoder: str = "") -> None:
        """`weights` is a folder that `save` wrote. Raises as `load` does."""
        self._scorer, self._words = load(weights, encoder), HashingEmbedder(DIM)
        self.size = self._scorer.settings.size

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        """The best set by calibrated uplift, shown in the order of the records' ids, or none."""
        if not candidates:
            return Selection(chosen=None, policy=self.name)
        records = [candidate.record for candidate in candidates]
        score, vectors = self._scorer.of(asked(situation), records), self._words.embed([lesson(record) for record in records])
        return chosen(situation, candidates, vectors, score, self._scorer.calibrated, size=self.size, policy=self.name)
