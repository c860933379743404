"""What keeps a cluster as wanted: a folder for each subject."""
