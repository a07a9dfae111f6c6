# shellcheck shell=bash
# Words for sessions of scripts/install: the folder `place` is taken for /.

built=$(dirname "$(command -v nvml-record)")
umask 022
mkdir place

# Installs this build, or does what the options say. What it says beside goes into the file `said`: installs OPTION…
installs() {
    # Modes do not depend on the umask.
    (umask 077 && exec "$REPOSITORY/scripts/install" --from "$built" --destdir "$PWD/place" "$@") 2>said
}

# Every file with its mode, and folders of another mode and what is another user's.
files() {
    (
        cd place || exit
        find . ! -type d -printf '%m %P\n' | sort -k 2
        find . -type d ! -perm 755
        find . ! -uid "$(id -u)"
    )
}

# Writes a file of these lines, and the folders above it: file PATH LINE…
file() {
    mkdir -p "$(dirname "place/$1")"
    printf '%s\n' "${@:2}" >"place/$1"
}
