"""Operations as visible lists of phases: read one to see what the command does, in order."""
