"""Promise: what an output gave, measured against the ideal run and judged by what was promised."""
