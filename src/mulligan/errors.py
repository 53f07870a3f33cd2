"""The exceptions of the package, drawn: failures of the machine, never of the subject.

MulliganError
├── UsageError            the call itself is wrong: a setting, a name, a file's format   (exit status 2)
│   ├── InvalidData       text at an edge does not fit its noun, or is refused as unsafe
│   └── UnknownName       no world, selector, arm or model of that name; lists the known ones
├── StoreError            the database cannot do what was asked
│   ├── StoreDamaged      the file is not a healthy store; says how to recover
│   ├── StoreFrozen       a write to a store that was opened frozen
│   └── EmbeddingMismatch vectors of another model or dimension; says how to re-embed
├── ModelError            no usable answer from a language model
│   ├── ModelUnreachable  connection, time-out or server failure after the retries
│   └── UnseenRequest     a recording does not hold this request; names the nearest one
├── WorldUnfit            a world fails its conformance check, so it may not admit records
└── MissingExtra          a package of an optional extra is missing; says what to install

A wrong query, a crash of candidate code, an unparseable reply are values (verdicts, refused proposals), not exceptions.
"""


class MulliganError(Exception):
    """Root of the tree. The message is one line that says what is wrong and what to do."""


class UsageError(MulliganError): ...


class InvalidData(UsageError): ...


class UnknownName(UsageError): ...


class StoreError(MulliganError): ...


class StoreDamaged(StoreError): ...


class StoreFrozen(StoreError): ...


class EmbeddingMismatch(StoreError): ...


class ModelError(MulliganError): ...


class ModelUnreachable(ModelError): ...


class UnseenRequest(ModelError): ...


class WorldUnfit(MulliganError): ...


class MissingExtra(MulliganError): ...
