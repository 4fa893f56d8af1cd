"""Plug-ins that write the record of a run while another framework trains it. Each framework is imported in its own file."""
