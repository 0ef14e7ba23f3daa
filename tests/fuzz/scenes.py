"""Cases whose records are made for one transform, which other records would not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from calving.model.record_path import TransformSpec
from tests.fuzz import draws, events, flat, json_maps, queries
from tests.fuzz.chain import SINK
from tests.fuzz.fates import decode_json

if TYPE_CHECKING:
    from tests.fuzz.cases import Case

SCENES = ("Cast", "Debezium", "Debezium with a schema", "Dms", "JsonToMap", "Mongo", "Sql", "TimestampConverter")


def played(random: Random, case: Case, shape: Schema) -> Case:
    """The case with other records and transforms. Its tables get columns for what the transforms add."""
    run = replace(case.run, evolution=replace(case.run.evolution, evolve=True))
    case = replace(case, run=run, converter="json", schemas=(), envelopes=(), keys=(), key_converter="bytes")
    count, names = len(case.raws), [field.name for field in shape.fields]
    match random.choice(SCENES):
        case "Cast":
            return _of_json(random, case, flat.records(random, count, wild=True), flat.cast_step(random))
        case "TimestampConverter":
            return _of_json(random, case, flat.records(random, count, wild=True), flat.moment_step(random))
        case "Sql":
            return _of_json(random, case, flat.records(random, count, wild=False), queries.step(random))
        case "Debezium":
            return _of_json(random, case, events.debezium(random, _rows(random, case)), events.debezium_step(random))
        case "Dms":
            step = TransformSpec("unwrap", random.choice(("", SINK)) + "DmsTransform", {})
            return _of_json(random, case, events.dms(random, _rows(random, case)), step)
        case "JsonToMap":
            raws, decoded = json_maps.texts(random, names, count)
            run = replace(case.run, transforms=(json_maps.step(random),))
            return replace(case, run=run, raws=tuple(raws), decoded=tuple(decoded), converter="string")
        case "Mongo":
            found = events.mongo(random, names, count)
            steps = (TransformSpec("mongo", "MongoDebeziumTransform", {}), events.debezium_step(random))
            run = replace(case.run, transforms=steps)
            case = replace(case, run=run, raws=tuple(found[0]), decoded=tuple(found[1]), key_converter="json")
            return replace(case, envelopes=tuple(found[2]), keys=tuple(found[3]))
    converter = random.choice([*events.ENCODERS])
    schema, raws, decoded = events.typed(random, converter, shape.as_struct(), count)
    run = replace(case.run, transforms=(events.debezium_step(random),))
    case = replace(case, run=run, raws=tuple(raws), decoded=tuple(decoded), schemas=(schema,), converter=converter)
    return _beside(random, case)


def _rows(random: Random, case: Case) -> Sequence[bytes | None]:
    """The records of a case of JSON, or flat ones."""
    return (
        case.raws if case.decoded == tuple(decode_json(case.raws)) else flat.records(random, len(case.raws), wild=True)
    )


def _of_json(random: Random, case: Case, raws: Sequence[bytes | None], step: TransformSpec) -> Case:
    """Some chains have a step before or after."""
    case = replace(case, raws=tuple(raws), decoded=tuple(decode_json(raws)))
    more = draws.chain(random, ("id", "n", "new"), (), many=len(raws) > 500) if random.random() < 0.3 else ()
    chain = (*more, step) if random.random() < 0.3 else (step, *more)
    return _beside(random, replace(case, run=replace(case.run, transforms=chain)))


def _beside(random: Random, case: Case) -> Case:
    given = draws.envelopes(random, len(case.raws)) if random.random() < 0.5 else []
    return replace(case, envelopes=tuple(given))
