"""Promise: what an output produced, measured against the ideal run and judged by its promises."""
