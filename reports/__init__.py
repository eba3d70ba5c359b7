"""The forms a report can take, one module each."""
