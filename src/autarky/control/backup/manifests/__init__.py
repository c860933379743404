"""The definitions of Backup and BackupSchedule, and the pods that do the work."""
