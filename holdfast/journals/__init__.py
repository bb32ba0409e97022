"""What is written line by line or as a small whole file, each with a check word."""
