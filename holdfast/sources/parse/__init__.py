"""Text and tables to rows of the declared schema, or to bad rows. No file is opened for good here."""
