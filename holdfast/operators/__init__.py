"""Transform: deterministic operator logic over frames. No session, no clock."""
