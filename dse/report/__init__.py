"""The answer as a page: frames to charts, tables and text; writing files is one function."""
