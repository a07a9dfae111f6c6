# shellcheck shell=bash disable=SC2016,SC1091
# Words for sessions that need surroundings of their own: mounts, processes, an /etc of little, engines.

# Runs commands of bash in the surroundings: inside 'mount … && …'
inside() {
    nsenter --target "$surroundings" --mount --pid bash -c 'cd "$0" && eval "$*"' "$PWD" "$@"
}

# Begins them, without what the machine itself has in /etc and /run. They end with the case.
begin-surroundings() {
    [ -z "${holder:-}" ] || kill -KILL "$holder"
    rm -rf begun etc
    mkdir -p etc engines
    cp -a /etc/ld.so* /etc/passwd /etc/group /etc/nsswitch.conf etc
    setpriv --pdeathsig KILL unshare --mount --propagation=private --pid --fork --kill-child --mount-proc \
        sh -ec 'mount --bind etc /etc; mount -t tmpfs none /run; : >begun; sleep infinity & wait' &
    holder=$!
    disown
    until-so '[ -e begun ]'
    read -r surroundings _ <"/proc/$holder/task/$holder/children" || :
}

# The findings of doctor's checks that are not well: unwell CHECK,…
unwell() {
    local said how id text status=0
    said=$(migctl doctor --quiet --only="$1" "${@:2}" 2>&1) || status=$?
    while read -r how id text; do
        case $how in
            fail | warn) echo "$how  $id  $text" ;;
            # The summary, and what the status says.
            [0-9]* | migctl: | '') ;;
            *) echo "      $how $id $text" ;;
        esac
    done <<<"$said"
    return $status
}

# Puts a stand-in for an engine first in PATH. It prints the file that it is given: says dockerd 'Docker version 29.9.3, build x'
says() {
    printf '#!/bin/sh\n[ "$1" != --version ] || exec echo "%s"\nfor file; do [ ! -f "$file" ] || exec cat "$file"; done\n' "$2" >"engines/$1"
    chmod 755 "engines/$1"
}

# Has the low-level runtime say a version: low 'runc version 1.3.0'
low() {
    mkdir -p low
    printf '#!/bin/sh\n[ "$1" != --version ] || exec echo "%s"\nexec %s "$@"\n' "$1" "$bin/runc" >low/runc
    chmod 755 low/runc
    sed -i "1s,.*,runtime = \"$PWD/low/runc\"," base.toml
    config
}

# Starts a process with this command name in the surroundings, whose pid there is then in the file `pid`.
process() {
    cp /bin/sleep "$1"
    inside "$PWD/$1 600 </dev/null >/dev/null 2>&1 & echo \$! >pid
        until-so \"grep -qx ${1:0:15} /proc/\$!/comm\""
}

# Does to the simulated machine what nvml-sim has no verb for: alter 'FILTER OF JQ'
alter() {
    jq "$1" machine/state.json >altered
    mv altered machine/state.json
}

bin=$(dirname "$(command -v migctl)")
PATH=$PWD/engines:$PATH
begin-surroundings
# As a machine has it whose engines are well.
low 'runc version 1.3.0'
says podman 'podman version 6.2.0'
export bin
export -f inside unwell until-so has sim machine config
