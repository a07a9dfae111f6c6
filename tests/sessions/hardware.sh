# shellcheck shell=bash
# Words for sessions of the scripts for real GPUs, on simulated machines. Their containers are real.

built=$(dirname "$(command -v nvml-record)")

# Runs a script on the machine in a folder, with the programs of the system alone beside ours: on FOLDER SCRIPT OPTION…
on() {
    local library=$PWD/$1/lib/libnvidia-ml.so.1
    [ -e "$library" ] || library=
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$REPOSITORY/scripts/$2" --from "$built" ${library:+--library "$library"} \
        --driver-root "$PWD/$1" "${@:3}"
}

# The calls that change the driver, with how often each came since `sim trace on`.
changed() {
    sim trace show | awk '$2 ~ /Create|Destroy|Set|Reset|Clear|Remove/ { print $2 }' | sort | uniq -c
}

# Runs a script that only looks. Prints what it has changed, which is to be nothing: looks SCRIPT
looks() {
    local status=0
    sim trace on
    sim show --json >before
    on machine "$1" >transcript || status=$?
    sim show --json | diff before -
    changed
    return $status
}

# The commands of a transcript, each with its exit status. Not all machines have an nvidia-smi.
commands() {
    awk '/^\$ / { shown = substr($0, 3) } /^  exit / { print shown ": " $2 }' "$1" | grep -v '^nvidia-smi'
}

# What a transcript has of containers, which need root and runc.
containers() { sed -n '/^\$ runmig\|^# no containers/,$ { s/^\$ //; p }' "$1"; }

# The rows of nvml-record.
rows() { grep -v '^$\|^[#$ ]'; }

# The guarantees of a transcript. Not all machines have a podman.
guarantees() { sed -n '/^# guarantees/,$ { /no podman\|of podman.*: yes/d; p }' transcript; }

# scripts/hardware-shares on a new machine, which ends with it: shares 'OPTIONS OF nvml-sim new' OPTION…
# The machine is in the same place in its containers, where nothing below /dev can be.
shares() {
    local place status=0
    place=$(mktemp -d /tmp/shares.XXXXXX)
    # shellcheck disable=SC2016
    unshare --mount --propagation=private bash -ec 'mount -t tmpfs none "$0"
        nvml-sim new "$0/machine" $1 >/dev/null
        [[ $* != *driver* ]] || mount -t cgroup2 none /sys/fs/cgroup
        cd "$0" && on machine hardware-shares "${@:2}"' "$place" "$@" || status=$?
    rmdir "$place"
    return $status
}
export built
export -f on
