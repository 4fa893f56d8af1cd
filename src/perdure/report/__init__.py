"""Views of an audit: the HTML report, tables and figures. All numbers come from the audit."""

from perdure.report.exports import figures, tables, write_figures, write_tables
from perdure.report.page import write_page
from perdure.report.tables import Table

__all__ = ["Table", "figures", "tables", "write_figures", "write_page", "write_tables"]
