"""The answer of an audit: one sentence, learners in ranked order, and a verdict on each question."""

from perdure.audits.summary.questions import QUESTIONS, Question
from perdure.audits.summary.results import AuditSummary, LearnerSummary, QuestionVerdict
from perdure.audits.summary.summarize import summarize

__all__ = ["QUESTIONS", "AuditSummary", "LearnerSummary", "Question", "QuestionVerdict", "summarize"]
