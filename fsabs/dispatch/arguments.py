"""ElasticDL's command-line arguments for data, as an argparse helper that gives a dispatcher and a data reader.

The arguments are those of `elasticdl/python/common/args.py` that say which data is read and how it is cut into tasks,
with the names that its design documents have, earlier and later.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from ..readers.data import AbstractDataReader, Mode, create_custom_data_reader, create_data_reader, parse_params
from .dispatcher import TaskDispatcher

_CUSTOM = "CustomDataReader"
"""The class of the model definition file, where its arguments are given and no name."""


class JobArguments(NamedTuple):
    """A job that the arguments describe."""

    dispatcher: TaskDispatcher
    readers: dict[str, AbstractDataReader]
    """The data readers, by mode: "training", "evaluation", "prediction"."""
    model_params: dict[str, Any]
    """The arguments of the model's constructor, for the training program: nothing here uses them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ElasticDL's arguments for data to a parser, and the URL of the job's database."""
    group = parser.add_argument_group("data", "which data is read, and how it is cut into tasks (as ElasticDL has it)")
    for names, of in (
        (["--training_data", "--training_data_dir"], "the training data"),
        (["--validation_data", "--validation_data_dir", "--evaluation_data_dir"], "the evaluation data"),
        (["--prediction_data", "--prediction_data_dir"], "the data to predict from"),
    ):
        group.add_argument(*names, default="", help=f"URL, path or table of {of}")
    group.add_argument("--records_per_task", type=_positive, help="records of a task, at most")
    group.add_argument("--minibatch_size", type=_positive, help="records of a minibatch, in place of that")
    group.add_argument("--num_minibatches_per_task", type=_positive, default=8, help="minibatches of a task")
    group.add_argument("--num_epochs", type=int, default=1, help="passes over the training data; 0 has no end")
    group.add_argument("--data_reader_params", default="", help='options of the data reader, "name=value;name=value"')
    group.add_argument(
        "--custom_data_reader", default="", help=f"a class or function of the model definition file: {_CUSTOM}"
    )
    group.add_argument("--custom_data_reader_params", default="", help='its arguments, "name=value;name=value"')
    group.add_argument("--model_def", default="", help="the model definition file, with the custom data reader")
    group.add_argument("--model_params", default="", help="arguments of the model, for the training program")
    group.add_argument("--shuffle_seed", type=int, default=None, help="shuffles the tasks anew in each epoch")
    group.add_argument("--task_database", required=True, help="sqlite:///path or postgresql+psycopg://user@host/name")
    group.add_argument("--job_name", default="default", help="name of the job in the database")


def create_job(arguments: argparse.Namespace) -> JobArguments:
    """Create the job that parsed arguments describe, or open it if it is there with the same data and settings.

    A custom data reader without any data given has the training data. Raises `ValueError` if no data is given, or
    training and prediction data; `FileExistsError` for another job of that name.
    """
    model_params = parse_params(arguments.model_params)
    origins = {
        Mode.TRAINING: arguments.training_data,
        Mode.EVALUATION: arguments.validation_data,
        Mode.PREDICTION: arguments.prediction_data,
    }
    custom = arguments.custom_data_reader or (arguments.custom_data_reader_params and _CUSTOM)
    per_task = arguments.records_per_task
    if per_task is None:
        if arguments.minibatch_size is None:
            raise ValueError("--records_per_task or --minibatch_size is needed")
        per_task = arguments.minibatch_size * arguments.num_minibatches_per_task
    modes = [mode for mode, origin in origins.items() if origin] or ([Mode.TRAINING] if custom else [])
    if not modes:
        raise ValueError("none of --training_data, --validation_data and --prediction_data is given")
    readers = {mode: _reader(arguments, origins[mode], custom, per_task) for mode in modes}
    dispatcher = TaskDispatcher.create(
        arguments.task_database,
        arguments.job_name,
        training=readers.get(Mode.TRAINING),
        evaluation=readers.get(Mode.EVALUATION),
        prediction=readers.get(Mode.PREDICTION),
        records_per_task=per_task,
        num_epochs=arguments.num_epochs,
        seed=arguments.shuffle_seed,
        exist_ok=True,
    )
    return JobArguments(dispatcher, readers, model_params)


def _reader(arguments: argparse.Namespace, origin: str, custom: str, per_task: int) -> AbstractDataReader:
    if not custom:
        return create_data_reader(origin, per_task, **parse_params(arguments.data_reader_params))
    if not arguments.model_def:
        raise ValueError("a custom data reader needs --model_def, the file that defines it")
    return create_custom_data_reader(
        arguments.model_def,
        custom,
        arguments.custom_data_reader_params,
        data_origin=origin or None,
        records_per_task=per_task,
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"it is at least 1, not {value}")
    return value
