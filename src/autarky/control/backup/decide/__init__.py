"""Pure decisions on backups."""
