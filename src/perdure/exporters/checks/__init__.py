"""Results of the release gate in the formats of CI systems: JUnit XML, GitHub annotations and step summaries."""

from perdure.exporters.checks.github import append_step_summary, github_annotations, step_summary
from perdure.exporters.checks.junit import junit_xml

__all__ = ["append_step_summary", "github_annotations", "junit_xml", "step_summary"]
