# Asks the migctl that is installed, so that the code fits it.
migctl completion fish | source
