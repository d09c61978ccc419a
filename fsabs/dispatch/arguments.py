"""ElasticDL's command-line arguments for data, as an argparse helper that gives a dispatcher and a data reader.

The arguments are those of `elasticdl/python/common/args.py` that say which data is read and how it is cut into tasks.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from ..readers.data import AbstractDataReader, Mode, create_custom_data_reader, create_data_reader, parse_params
from .dispatcher import TaskDispatcher


class JobArguments(NamedTuple):
    """A job that the arguments describe."""

    dispatcher: TaskDispatcher
    readers: dict[str, AbstractDataReader]
    """The data readers, by mode: "training", "evaluation", "prediction"."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ElasticDL's arguments for data to a parser, and the URL of the job's database."""
    group = parser.add_argument_group("data", "which data is read, and how it is cut into tasks (as ElasticDL has it)")
    group.add_argument("--training_data", default="", help="URL, path or table of the training data")
    group.add_argument("--validation_data", default="", help="of the evaluation data")
    group.add_argument("--prediction_data", default="", help="of the data to predict from")
    group.add_argument("--records_per_task", type=_positive, required=True, help="records of a task, at most")
    group.add_argument("--num_epochs", type=int, default=1, help="passes over the training data; 0 has no end")
    group.add_argument("--data_reader_params", default="", help='options of the data reader, "name=value;name=value"')
    group.add_argument("--custom_data_reader", default="", help="a class or function of the model definition file")
    group.add_argument("--custom_data_reader_params", default="", help='its arguments, "name=value;name=value"')
    group.add_argument("--model_def", default="", help="the model definition file, for --custom_data_reader")
    group.add_argument("--shuffle_seed", type=int, default=None, help="shuffles the tasks anew in each epoch")
    group.add_argument("--task_database", required=True, help="sqlite:///path or postgresql+psycopg://user@host/name")
    group.add_argument("--job_name", default="default", help="name of the job in the database")


def create_job(arguments: argparse.Namespace) -> JobArguments:
    """Create the job that parsed arguments describe, or open it if it is there with the same data and settings.

    Raises `ValueError` if no data is given, or training and prediction data; `FileExistsError` for another job of that
    name.
    """
    origins = {
        Mode.TRAINING: arguments.training_data,
        Mode.EVALUATION: arguments.validation_data,
        Mode.PREDICTION: arguments.prediction_data,
    }
    readers = {mode: _reader(arguments, origin) for mode, origin in origins.items() if origin}
    if not readers:
        raise ValueError("none of --training_data, --validation_data and --prediction_data is given")
    dispatcher = TaskDispatcher.create(
        arguments.task_database,
        arguments.job_name,
        training=readers.get(Mode.TRAINING),
        evaluation=readers.get(Mode.EVALUATION),
        prediction=readers.get(Mode.PREDICTION),
        records_per_task=arguments.records_per_task,
        num_epochs=arguments.num_epochs,
        seed=arguments.shuffle_seed,
        exist_ok=True,
    )
    return JobArguments(dispatcher, readers)


def _reader(arguments: argparse.Namespace, origin: str) -> AbstractDataReader:
    per_task = arguments.records_per_task
    if not arguments.custom_data_reader:
        if arguments.custom_data_reader_params:
            raise ValueError("--custom_data_reader_params needs --custom_data_reader")
        return create_data_reader(origin, per_task, **parse_params(arguments.data_reader_params))
    if not arguments.model_def:
        raise ValueError("--custom_data_reader needs --model_def, the file that defines it")
    return create_custom_data_reader(
        arguments.model_def,
        arguments.custom_data_reader,
        arguments.custom_data_reader_params,
        data_origin=origin,
        records_per_task=per_task,
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"it is at least 1, not {value}")
    return value
