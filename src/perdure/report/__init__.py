"""Views of an audit: the HTML report, tables and figures. All numbers come from the audit."""

from perdure.exporters.exported_tables import exported_tables
from perdure.exporters.tables import Table
from perdure.report.exports import export_figures, export_tables, exported_figures
from perdure.report.page import write_page
from perdure.report.reproduction import reproduction_script

__all__ = [
    "Table",
    "export_figures",
    "export_tables",
    "exported_figures",
    "exported_tables",
    "reproduction_script",
    "write_page",
]
