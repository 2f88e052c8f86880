"""The rows of the table, by kind of use."""
