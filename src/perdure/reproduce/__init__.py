"""Targets of `perdure reproduce`: one for each published table or figure."""

from perdure.reproduce.five_questions import page as five_questions
from perdure.reproduce.more_than_forgetting import page as more_than_forgetting
from perdure.reproduce.shapc import page as shapc

TARGETS = {
    "five-questions": five_questions.TARGET,
    "more-than-forgetting": more_than_forgetting.TARGET,
    "shapc": shapc.TARGET,
}
"""The targets whose finished runs are rows of files."""

__all__ = ["TARGETS"]
