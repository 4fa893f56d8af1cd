"""Views of an audit: the HTML report, tables and figures. All numbers come from the audit."""

from perdure.report.exports import export_figures, export_tables, exported_figures, exported_tables
from perdure.report.page import write_page
from perdure.report.tables import Table

__all__ = ["Table", "export_figures", "export_tables", "exported_figures", "exported_tables", "write_page"]
