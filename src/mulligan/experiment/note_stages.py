"""The stages of notes: written from the source plays, validated or not, or banked; within a budget of tokens.

In: the bench and the source episodes. Out: a store of notes. Like the other stages each goes on where an earlier start stopped: what is
booked is not done again, and what was spent counts towards the budget.
"""

from dataclasses import replace

from mulligan.experiment.arms import BankMemory
from mulligan.experiment.stages import Bench, Episodes, Variant, played, settle, unsettled
from mulligan.memory import Memory
from mulligan.notes import Play, Shown, Writer, add_to_bank, prune_bank
from mulligan.records import Episode, Task
from mulligan.store import Store
from mulligan.write import bank as banks

NOTES: frozenset[Variant] = frozenset({"validated", "unvalidated", "bank"})


def construct_notes(bench: Bench, variant: Variant, episodes: Episodes) -> None:
    """Write notes from the source plays, one after another, until they are through or the budget is spent."""
    stage = f"construct {variant}"
    chosen = {e.task.id: e for e in banks.kept(list(episodes.values()))} if variant == "bank" else episodes
    todo, most = unsettled(bench, stage, chosen), bench.experiment.memory.note_tokens
    spent = sum(row.usage.tokens for row in bench.ledger.ledger() if row.stage == stage)
    with Store(bench.memory_path(variant)) as store:
        memory = bench.memory(Memory, store)
        writer = Writer(memory=memory, model=bench.model, play=_player(bench, stage) if variant == "validated" else None)
        for place, episode in enumerate(todo, len(chosen) - len(todo) + 1):
            if most and spent >= most:
                break
            write = add_to_bank if variant == "bank" else Writer.write
            written = write(writer, episode, list(episodes.values()))
            memory.note(episode)
            settle(bench, stage, episode.task, written.usage)
            spent += written.usage.tokens
            bench.progress(stage, place, len(chosen))


def practise_bank(bench: Bench, episodes: Episodes) -> None:
    """Play the source tasks with the bank, records of their own groups left out, and retire what seldom came with a success."""
    with Store(bench.memory_path("bank")) as store:
        memory = bench.memory(BankMemory, store, need=0.0)
        used = played(bench, "practice bank 0", [e.task for e in episodes.values()], bench.agent(), memory)
        prune_bank(memory, list(used.values()))


def _player(bench: Bench, stage: str) -> Play:
    """The experiment's agent with one note. Its plays are kept as evidence."""

    def play(task: Task, shown: Shown) -> Episode:
        episode = replace(bench.agent().play(task, bench.world, bench.model, shown), label=f"{stage} {shown.record.id}")  # type: ignore[arg-type]  # agents ask it to recall, and nothing else
        bench.ledger.add_episode(episode)
        return episode

    return play
