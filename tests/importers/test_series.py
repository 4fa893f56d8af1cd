"""From evaluations over time to a table: which evaluation ends a step, and which lie within steps."""

import numpy as np
import pytest

from perdure.base.errors import InputError
from perdure.importers.series import BEFORE_TRAINING, TimedEvaluation, arrange_evaluations


def timed(*rows: tuple[float, dict[int, float]], trained: tuple[int, ...] | None = None) -> list[TimedEvaluation]:
    marks = (None,) * len(rows) if trained is None else trained
    return [
        TimedEvaluation(position, values) if mark is None else TimedEvaluation(position, values, mark)
        for (position, values), mark in zip(rows, marks, strict=True)
    ]


def test_the_number_of_evaluated_tasks_tells_the_step():
    evaluations = timed((10, {0: 0.4}), (20, {0: 0.9}), (30, {0: 0.3, 1: 0.5}), (40, {0: 0.5, 1: 0.8}))
    arranged = arrange_evaluations("f", evaluations, 2)
    np.testing.assert_array_equal(arranged.table, [[0.9, np.nan], [0.5, 0.8]])
    assert [(entry.step, entry.batches) for entry in arranged.evaluations] == [(0, 10), (1, 10)]
    assert arranged.initial is None


def test_stated_tasks_and_revisits():
    rows = [(0, {0: 0.1, 1: 0.1}), (1, {0: 0.9, 1: 0.2}), (2, {0: 0.5, 1: 0.8}), (3, {0: 0.7, 1: 0.6})]
    arranged = arrange_evaluations("f", timed(*rows, trained=(BEFORE_TRAINING, 1, 0, 1)), 2)
    assert arranged.curriculum == (1, 0, 1)
    assert arranged.initial is not None
    assert arranged.initial.tolist() == [0.1, 0.1]
    assert arranged.table.shape == (3, 2)


def test_evaluations_before_training_are_recognized_by_their_position_or_number():
    rows = [(0, {0: 0.1, 1: 0.1}), (5, {0: 0.9, 1: 0.2}), (9, {0: 0.5, 1: 0.8})]
    arranged = arrange_evaluations("f", timed(*rows), 2)
    assert arranged.initial is not None
    later = [(position + 3, values) for position, values in rows]
    arranged = arrange_evaluations("f", timed(*later), 2)
    assert arranged.initial is not None
    assert arranged.notes == ("3 evaluations of 2 tasks: the first one is taken as before training",)


def test_equal_numbers_of_evaluations_per_task_are_assumed_and_noted():
    rows = [(number + 1, {0: 0.1 * number, 1: 0.2}) for number in range(6)]
    arranged = arrange_evaluations("f", timed(*rows), 2)
    assert arranged.table[:, 0].tolist() == pytest.approx([0.2, 0.5])
    assert len(arranged.evaluations) == 4
    assert arranged.notes[0].startswith("3 evaluations per task: the last of each 3 is taken as the end of a task")


def test_values_logged_one_by_one_are_joined():
    rows = [(1, {0: 0.9}), (2, {0: 0.5}), (3, {1: 0.8})]
    arranged = arrange_evaluations("f", timed(*rows), 2)
    np.testing.assert_array_equal(arranged.table, [[0.9, np.nan], [0.5, 0.8]])


def test_repeated_positions_keep_the_last_value():
    rows = [(1, {0: 0.7, 1: 0.1}), (1, {0: 0.9, 1: 0.1}), (2, {0: 0.5, 1: 0.8})]
    arranged = arrange_evaluations("f", timed(*rows), 2)
    assert arranged.table[0, 0] == 0.9
    assert arranged.notes == ("1 values were logged again at the same position; the last one is used",)


def test_incomplete_evaluations_within_steps_are_left_out_and_counted():
    rows = [(1, {0: 0.9}), (2, {1: 0.4}), (3, {0: 0.5, 1: 0.8})]
    arranged = arrange_evaluations("f", timed(*rows, trained=(0, 1, 1)), 2)
    assert not arranged.evaluations
    assert arranged.notes == ("1 evaluations within tasks are left out: they do not cover all tasks seen so far",)


@pytest.mark.parametrize(
    ("evaluations", "tasks", "message"),
    [
        ([], 2, "expected at least one evaluation, got none"),
        (
            timed(
                (1, {0: 0.5, 1: 0.5}),
                (2, {0: 0.5, 1: 0.5}),
                (3, {0: 0.5, 1: 0.5}),
                (4, {0: 0.5, 1: 0.5}),
                (5, {0: 0, 1: 0}),
            ),
            2,
            "got 5",
        ),
        (
            timed((1, {0: 0.5}), (2, {0: 0.5, 1: 0.5, 2: 0.1})),
            3,
            "expected evaluations of 1, 2, ..., 3 tasks, got evaluations of 1, 3",
        ),
        (
            timed((1, {1: 0.5}), (2, {1: 0.5})),
            2,
            "expected evaluations of all 2 tasks, or of the tasks seen so far; at position 1",
        ),
        (timed((1, {0: 0.5}), (2, {1: 0.5}), trained=(0, 1)), 2, "task 1 was not evaluated after step 2"),
        (
            timed((1, {0: 0.5}), (2, {0: 0.5}), trained=(0, BEFORE_TRAINING)),
            1,
            "expected evaluations before training at the beginning",
        ),
        (timed((1, {0: 0.5}), trained=(BEFORE_TRAINING,)), 1, "got only evaluations before it"),
    ],
)
def test_what_cannot_be_arranged_is_explained(evaluations, tasks, message):
    with pytest.raises(InputError, match=message) as caught:
        arrange_evaluations("history.csv", evaluations, tasks)
    assert str(caught.value).startswith("history.csv: ")
