#!/bin/sh
# Starts {what} of the federation and runs until it is stopped (Ctrl-C). The command bfl must be on
# PATH. Arguments go to it.
exec bfl federation {role} "$(dirname "$0")" "$@"
