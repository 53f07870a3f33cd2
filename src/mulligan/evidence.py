"""Evidence: what happened, in the store's file: tasks, episodes with their attempts, and every decision about a proposal.

In: nouns. Out: the same nouns, in the order in which they were added. Ids are hashes of content, so writing twice is writing once;
a move that `LIFECYCLE` does not know is refused.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from mulligan.database import check_names, now
from mulligan.errors import InvalidData, StoreError
from mulligan.ledger import Ledger, body
from mulligan.nouns import content_id, noun, to_plain
from mulligan.records import LIFECYCLE, Decision, Episode, Split, Task
from mulligan.redaction import redact

Row = tuple[Any, ...]

_CORRECTED = """(p.episode, p.attempt) IN (SELECT o.episode, o.attempt FROM decisions m JOIN proposals o ON o.id = m.proposal
    WHERE m.record = :record AND m.record <> '' ORDER BY o.seq LIMIT 1)"""


@noun
class StoredDecision:
    """A decision and the attempt that it is about."""

    episode_id: str
    attempt_index: int
    decision: Decision


def check_move(old: str, new: str, what: str) -> None:
    """Raises InvalidData for a move that LIFECYCLE does not know."""
    if new not in LIFECYCLE[old]:
        raise InvalidData(f"{what} is {old} and cannot become {new}")


class Evidence(Ledger):
    """The part of a store that keeps what happened."""

    def add_task(self, task: Task) -> str:
        """Store a task and return its content id. A task of that id and scope in another split is refused: splits do not leak."""
        task = redact(task)
        check_names(id=task.id, scope=task.scope)
        text, key = body(task), content_id("tsk", task)
        with self.transaction():
            sql = "SELECT split FROM tasks WHERE id = ? AND +scope = ? AND split <> ?"  # +: a scope holds many tasks, an id few
            if other := self._rows(sql, (task.id, task.scope, task.split)):
                raise InvalidData(f"task {task.id} is stored in split {other[0][0]}: in one scope it cannot be in {task.split} too")
            self._insert("tasks", key=key, created_at=now(), body=text)
        return key

    def add_episode(self, episode: Episode) -> str:
        """Store an episode with its task and attempts, without secrets, and return its content id."""
        episode = redact(episode)
        check_names(label=episode.label)
        numbers = [attempt.index for attempt in episode.attempts]
        if numbers != sorted(set(numbers)):
            raise InvalidData(f"the attempts of an episode of {episode.task.id} are not in order: {numbers}")
        texts = [body(attempt) for attempt in episode.attempts]
        rest = {f.name: getattr(episode, f.name) for f in fields(Episode) if f.name not in ("task", "attempts")}
        with self.transaction():
            task, key = self.add_task(episode.task), episode.id
            if self._insert("episodes", id=key, task=task, created_at=now(), body=body(rest)):
                for number, text in zip(numbers, texts, strict=True):
                    self._insert("attempts", episode=key, number=number, body=text)
        return key

    def episode(self, key: str) -> Episode:
        """The episode of that id. Raises StoreError if there is none."""
        with self._held():
            found = self._rows("SELECT e.body, t.body FROM episodes e JOIN tasks t ON t.key = e.task WHERE e.id = ?", (key,))
            attempts = self._rows("SELECT body FROM attempts WHERE episode = ? ORDER BY number", (key,))
        if not found:
            raise StoreError(f"{self.path} holds no episode {key}")
        [(text, task)] = found
        return self._noun(Episode, text, task=json.loads(task), attempts=[json.loads(attempt) for (attempt,) in attempts])

    def episodes(self, *, label: str | None = None, split: Split | None = None) -> list[Episode]:
        """Episodes in the order in which they were added."""
        return [self.episode(key) for (key,) in self._episode_ids("(? IS NULL OR e.label = ?)", label, label, split=split)]

    def episode_for(self, task_id: str, label: str) -> Episode | None:
        """The first episode of a task with that label, if any: what a resumed run need not play again."""
        found = self._episode_ids("t.id = ? AND e.label = ?", task_id, label)
        return self.episode(found[0][0]) if found else None

    def has_episode(self, task_id: str, label: str) -> bool:
        return bool(self._episode_ids("t.id = ? AND e.label = ?", task_id, label))

    def _episode_ids(self, where: str, *values: str | None, split: Split | None = None) -> list[Row]:
        sql = f"SELECT e.id FROM episodes e JOIN tasks t ON t.key = e.task WHERE {where} AND (? IS NULL OR t.split = ?) ORDER BY e.seq"
        return self._rows(sql, (*values, split, split))

    def add_decisions(self, episode_id: str, attempt_index: int, decisions: Sequence[Decision]) -> None:
        """Store what was proposed for one attempt, how it was checked and decided; the attempt then counts as examined.

        Raises InvalidData for a move that LIFECYCLE does not know, such as another decision on what was already decided.
        """
        decisions = redact(decisions)
        with self.transaction():
            sql = "UPDATE attempts SET examined = 1 WHERE episode = ? AND number = ?"
            if not self._execute(sql, (episode_id, attempt_index)).rowcount:
                raise StoreError(f"{self.path} holds no attempt {attempt_index} of episode {episode_id}")
            for position, decision in enumerate(decisions):
                key = content_id("prp", [episode_id, attempt_index, position, decision.proposal])
                self._add_decision(key, episode_id, attempt_index, decision)

    def _add_decision(self, key: str, episode_id: str, attempt_index: int, decision: Decision) -> None:
        # The arm that stores unverified alternatives says so in its reason: that waives the check, and nothing else does.
        checked = decision.check is not None or decision.reason == "admitted_unverified"
        path = ["proposed", *(["checked"] if checked else []), "admitted" if decision.admitted else "refused"]
        for old, new in pairwise(path):
            check_move(old, new, f"proposal {key}")
        if decision.check is not None and decision.check.proposal != decision.proposal:
            raise InvalidData(f"the check of proposal {key} is one of another proposal")
        self._insert("proposals", id=key, episode=episode_id, attempt=attempt_index, body=body(decision.proposal))
        if decision.check is not None:
            check = to_plain(decision.check)
            del check["proposal"]
            self._insert("checks", proposal=key, body=body(check))
        text = body({"reason": decision.reason, "rule": decision.rule, "record": decision.record})
        if not self._insert("decisions", proposal=key, state=path[-1], created_at=now(), body=text):
            [(state, before)] = self._rows("SELECT state, body FROM decisions WHERE proposal = ?", (key,))
            if before != text:
                check_move(state, path[-1], f"proposal {key}")

    def decisions(self, episode_id: str | None = None, *, record: str | None = None) -> list[StoredDecision]:
        """Decisions in the order in which they were made: all, those of an episode, or those on the action that a record corrects."""
        where = "p.episode = :episode" if episode_id is not None else _CORRECTED if record is not None else "1"
        sql = f"""SELECT p.episode, p.attempt, p.body, c.body, d.body FROM decisions d JOIN proposals p ON p.id = d.proposal
            LEFT JOIN checks c ON c.proposal = p.id WHERE {where} ORDER BY p.seq"""
        found = []
        for episode, attempt, proposal_text, check_text, text in self._rows(sql, {"episode": episode_id, "record": record}):
            proposal = json.loads(proposal_text)
            decision = self._noun(Decision, text, proposal=proposal, check=check_text and {**json.loads(check_text), "proposal": proposal})
            found.append(StoredDecision(episode_id=episode, attempt_index=attempt, decision=decision))
        return found

    def examined(self, episode_id: str, attempt_index: int) -> bool:
        """Whether `add_decisions` was called for this attempt."""
        sql = "SELECT 1 FROM attempts WHERE episode = ? AND number = ? AND examined"
        return bool(self._rows(sql, (episode_id, attempt_index)))
