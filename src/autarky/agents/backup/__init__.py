"""The program of the pods that make and remove backups: it does one thing, says what it did, and ends."""
