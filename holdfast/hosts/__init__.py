"""Hosts: backup stores on folders and URLs, starting a unit from them, shipping to them. Drives `protocols`."""
