"""What the commands print: tables and progress bars."""
