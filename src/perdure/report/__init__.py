"""The page and the tables. They compute nothing."""

from perdure.report.exports import write_figures
from perdure.report.page import write_page
from perdure.report.tables import Table, tables, write_tables
from perdure.report.viewer import ViewedSample

__all__ = ["Table", "ViewedSample", "tables", "write_figures", "write_page", "write_tables"]
