"""A logged source: what cannot be read again is synced, cut and sealed here."""
