"""A file source: read where it is, cut by what is in it, fixed or growing."""
