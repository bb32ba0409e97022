"""Write: re-sendable output. A frame reaches its target once, however often it is sent."""
