"""Applications built with Holdfast, as a user would build them."""
